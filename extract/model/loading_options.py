"""Which model, and how it is loaded: a section of a run's configuration, so functions import what is heavy."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from extract.errors import UserError, in_one_line
from extract.yaml_file import Strict, explain

BackendName = Literal["hooks", "nnsight", "transformer_lens"]
DType = Literal["auto", "float32", "float16", "bfloat16"]
FromPretrained = dict[str, Any]  # arguments of transformers' `from_pretrained`


class LoadingOptions(Strict):
    """How the weights are loaded, besides their dtype and device."""

    attn_implementation: str | None = None  # eager, sdpa, flash_attention_2 …; null: what transformers chooses
    quantization: dict[str, JsonValue] | None = Field(None, min_length=1)
    # such as {quant_method: bitsandbytes, load_in_4bit: true}; weights already stored as GPTQ or AWQ need none
    max_memory: dict[int | str, int | str] | None = Field(None, min_length=1)  # such as {0: 20GiB, cpu: 60GiB}
    tp_plan: Literal["auto"] | None = None  # split each layer over the processes that torchrun starts

    def arguments(self, name: str, device: str, adapted: bool) -> FromPretrained:
        """Return the arguments of `from_pretrained`; UserError if options do not fit together or lack something."""
        names = ("attn_implementation", "max_memory" if self.tp_plan is None else "tp_plan")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.quantization is not None:
            if adapted:
                raise UserError(
                    f"{name}: an adapter cannot be merged into quantised weights; leave "
                    "model.loading.quantization or model.adapter out"
                )
            from transformers.quantizers import AutoQuantizationConfig

            try:
                given["quantization_config"] = AutoQuantizationConfig.from_dict(dict(self.quantization))
            except Exception as error:  # each method raises classes of its own
                message = f"{name}: model.loading.quantization is not valid: {in_one_line(error)}"
                raise UserError(message) from error
        if self.tp_plan is not None:
            if "WORLD_SIZE" not in os.environ:
                raise UserError(
                    "model.loading.tp_plan splits layers over several processes; start them with: "
                    "torchrun --nproc-per-node N -m refusal …"
                )
            return given
        if device != "auto" or self.max_memory is not None or best_device() == "cuda":
            given["device_map"] = device  # of auto: over all GPUs, and the processor for what does not fit
        elif best_device() == "mps":
            given["device_map"] = "mps"
        return given


def best_device() -> str:
    """Return the device that `auto` stands for: a GPU (cuda), else an Apple chip (mps), else the processor (cpu)."""
    import torch

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


DEFAULT = LoadingOptions()


class ModelConfig(Strict):
    """Which model, and how to load it."""

    name: str
    revision: str | None = None
    adapter: str | None = None  # the directory of a LoRA adapter (PEFT), merged into the weights
    dtype: DType = "auto"
    device: str = "auto"
    backend: BackendName = "hooks"
    template: str | None = None  # the tokenizer's own; plain (Question: … Answer: …, for base models); or a .jinja file
    template_args: dict[str, JsonValue] = Field(default_factory=dict)  # of the template: {enable_thinking: false}
    system: Literal["keep", "merge"] = "keep"  # merge: system messages go into the next user turn
    loading: LoadingOptions = DEFAULT


def model_config(**settings: Any) -> ModelConfig:
    """Return a model's configuration; raises UserError if there is no such setting, or a value does not fit."""
    try:
        return ModelConfig.model_validate(settings)
    except ValidationError as error:
        raise UserError(explain(error, ModelConfig)) from None


def quiet_libraries() -> None:
    """Turn off progress bars and warnings of transformers, tokenizers and similar libraries."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    # peft imports bitsandbytes where it is installed; the hub's client says each of its attempts without a network
    for name in ("transformers", "bitsandbytes", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
