"""LoRA adapters (PEFT), merged into the weights when a model is loaded."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from extract.errors import UserError, in_one_line
from extract.shipped import resolve_shipped

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CONFIG = "adapter_config.json"
BASE = "base.json"  # {"fingerprint": …} of the base in float32, where this project wrote the adapter
PROMPTS = ("What is the capital of France?", "Write two lines about the sea.", "How do I end a process on my computer?")
LIKELY = -8.0  # log-probability of the tokens that are compared
MOST_NATS = 0.01  # that rounding in float32 may cost


def find_adapter(adapter: str) -> Path:
    """Return the directory of an adapter, also of a shipped one; raises UserError without it."""
    folder = resolve_shipped(Path(adapter))
    if not (folder / CONFIG).is_file():
        raise UserError(f"no adapter in {adapter}: expected a directory with {CONFIG}")
    return folder


def is_adapter(name: str) -> bool:
    """Return whether a name is the directory of an adapter, here or among the shipped files."""
    return (resolve_shipped(Path(name)) / CONFIG).is_file()


def base_of(adapter: str) -> str | None:
    """Return the base model that an adapter's configuration names; None where it names none."""
    folder = find_adapter(adapter)
    try:
        base = dict(json.loads((folder / CONFIG).read_text(encoding="utf-8"))).get("base_model_name_or_path")
    except (ValueError, TypeError):
        raise UserError(f"{folder / CONFIG} is not valid: expected a JSON object") from None
    return str(base) if base else None


def merged(model: PreTrainedModel, folder: Path, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the model, in float32, with an adapter's weights added in, and compare it with the adapter unmerged.

    Tied weights that the adapter changes are untied first. Raises UserError if the adapter was made for another base,
    cannot be read, or cannot be merged exactly.
    """
    from peft import PeftModel

    from extract.model.weights import fingerprint

    if (folder / BASE).is_file():
        try:
            expected_base = json.loads((folder / BASE).read_text(encoding="utf-8"))["fingerprint"]
        except (ValueError, TypeError, KeyError):
            raise UserError(f'{folder / BASE} is not valid: expected {{"fingerprint": …}}') from None
        if expected_base != fingerprint(model):
            raise UserError(f"the adapter {folder} was made for other weights than those of {model.name_or_path}")
    try:
        unmerged = PeftModel.from_pretrained(model, str(folder))
        expected = _log_probs(unmerged, model, tokenizer)
        _untie(unmerged)
        with warnings.catch_warnings(action="ignore"):  # PEFT warns of tied weights and shows how to untie them
            summed: PreTrainedModel = unmerged.merge_and_unload()
        difference = float((_log_probs(summed, model, tokenizer) - expected)[expected > LIKELY].abs().max())
    except Exception as error:  # peft and safetensors raise classes of their own
        raise UserError(f"the adapter {folder} does not fit {model.name_or_path}: {in_one_line(error)}") from error
    if not difference <= MOST_NATS:  # also NaN
        raise UserError(
            f"the adapter {folder} cannot be merged into {model.name_or_path}: log-probabilities of the "
            f"merged model and of the adapter unmerged differ by {difference:.2g} nats, expected at most "
            f"{MOST_NATS}; merge it with PEFT and name the merged model's directory"
        )
    return summed


def _log_probs(model: nn.Module, base: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the next-token distributions of a few short prompts, (tokens, vocabulary)."""
    import torch

    from extract.model.weights import input_device

    rows = [tokenizer(text, return_tensors="pt").input_ids.to(input_device(base)) for text in PROMPTS]
    with torch.inference_mode():
        logits = [model(input_ids=row, use_cache=False).logits[0] for row in rows]
    return torch.cat(logits).float().log_softmax(-1)


def _untie(unmerged: nn.Module) -> None:
    """Give a module weights of its own where the adapter changes weights that it shares with another."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch import nn

    layers = [part.get_base_layer() for part in unmerged.modules() if isinstance(part, BaseTunerLayer)]
    changed = {id(weight) for layer in layers for weight in layer.parameters(recurse=False)}
    seen: set[int] = set()
    for module in unmerged.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if id(weight) in changed & seen:
                setattr(module, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
            seen.add(id(weight))
