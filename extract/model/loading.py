"""Loads a chat model or a text classifier from a directory or the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import huggingface_hub.constants
import torch
from huggingface_hub import errors, get_token
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)

from extract.chat.template import Arguments, System, choose_template
from extract.errors import UserError, in_one_line
from extract.model.adapter import find_adapter, merged
from extract.model.chat_model import ChatModel
from extract.model.loading_options import DEFAULT, DType, FromPretrained, ModelConfig, best_device, model_config
from extract.model.source import resolve

AnyChatModel = TypeVar("AnyChatModel", bound=ChatModel)


def load_model(name: str, **settings: Any) -> ChatModel:
    """Load weights (safetensors or GGUF, no remote code) and tokenizer; UserError if they cannot be loaded.

    `auto` means bfloat16 on the GPU (or spread over several GPUs) if there is one, else float32 on the CPU.

    Args:
        name: a directory, a hub id, a known name, a GGUF file, or `package:NAME` for the model inside an installed
            package.
        settings: the other fields of `ModelConfig`: revision, adapter, dtype, device, backend, template, ….
    """
    return open_model(ChatModel, model_config(name=name, **settings))


def open_model(kind: type[AnyChatModel], config: ModelConfig) -> AnyChatModel:
    """Load a model as `load_model` does, into a class that may have more methods than `ChatModel`."""
    name, revision, device = config.name, config.revision, config.device
    own, tokenizer = load_tokenizer(
        name, revision=revision, template=config.template, template_args=config.template_args, system=config.system
    )
    folder = None if config.adapter is None else find_adapter(config.adapter)
    arguments = config.loading.arguments(name, device, adapted=folder is not None)
    if getattr(own, "attn_logit_softcapping", None):  # sdpa, the default of transformers 5.19, leaves it out
        arguments.setdefault("attn_implementation", "eager")
    dtype = config.dtype if folder is None else "float32"
    model = _load_weights(class_for(own), name, revision, dtype, device, arguments)
    if folder is not None:
        model = merged(model, folder, tokenizer).to(_dtype(config.dtype, device))
    return kind(model, tokenizer, name=name, revision=_loaded_revision(model, revision), backend=config.backend)


def class_for(config: PretrainedConfig) -> Any:
    """Return the class that loads a chat model: with its eyes, where it has no class of text alone."""
    sees = type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def load_classifier(
    name: str, *, revision: str | None = None, device: str = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """Load a text classifier and its tokenizer, which pads on the right; return both and the revision.

    `auto` means bfloat16 on one GPU if there is one, else float32 on the CPU.
    """
    tokenizer = _right_padded(name, revision)
    model = _load_weights(AutoModelForSequenceClassification, name, revision, "auto", _one_device(device))
    if tokenizer.pad_token is None:  # as with many decoders
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token_id is None:
        raise UserError(f"{name}: the tokenizer has no padding token; set pad_token in its tokenizer_config.json")
    model.config.pad_token_id = tokenizer.pad_token_id  # decoders find the last token of a row by it
    return model.eval(), tokenizer, _loaded_revision(model, revision)


def _right_padded(name: str, revision: str | None) -> PreTrainedTokenizerBase:
    with _explained(name, revision):
        return AutoTokenizer.from_pretrained(
            resolve(name), padding_side="right", truncation_side="right", revision=revision, trust_remote_code=False
        )


def _one_device(device: str) -> str:
    return best_device() if device == "auto" else device


def _load_weights(
    auto: Any, name: str, revision: str | None, dtype: DType, device: str, options: FromPretrained | None = None
) -> PreTrainedModel:
    with _explained(name, revision):
        model, info = auto.from_pretrained(
            resolve(name),
            dtype=_dtype(dtype, device),
            use_safetensors=True,
            output_loading_info=True,
            revision=revision,
            trust_remote_code=False,
            **(DEFAULT.arguments(name, device, adapted=False) if options is None else options),
        )
    if missing := sorted(info["missing_keys"]):  # transformers would fill these with random values
        raise UserError(f"{name} does not hold a loadable model: its weights lack {missing[0]} ({len(missing)} in all)")
    return model


def _loaded_revision(model: PreTrainedModel, revision: str | None) -> str:
    return str(getattr(model.config, "_commit_hash", None) or revision or "")


def load_tokenizer(
    name: str,
    *,
    revision: str | None = None,
    template: str | None = None,
    template_args: Arguments | None = None,
    system: System = "keep",
) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    """Load a model's configuration, and its tokenizer with the chat template to use; no weights."""
    source = resolve(name)
    with _explained(name, revision):
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(
            source, padding_side="left", revision=revision, trust_remote_code=False
        )
    if not tokenizer.is_fast:
        raise UserError(f"{name}: its tokenizer has no fast version, needed for token positions; use another model")
    tokenizer.chat_template = choose_template(tokenizer, template, template_args, system)
    return config, tokenizer


def _dtype(dtype: DType, device: str) -> torch.dtype:
    if dtype != "auto":
        return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[dtype]
    return torch.bfloat16 if _one_device(device).startswith("cuda") else torch.float32


@contextmanager
def _explained(name: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # transformers, tokenizers and safetensors raise classes of their own
        raise UserError(_explain(name, revision, error)) from error


def _explain(name: str, revision: str | None, error: Exception) -> str:
    text, first = str(error), in_one_line(error)
    if isinstance(error, torch.OutOfMemoryError):
        return f"{name} does not fit into the device's memory: {first}"
    if "ignore_mismatched_sizes" in text:
        return f"{name} does not hold a loadable model: its weights have other shapes than its config.json says"
    if Path(resolve(name)).is_dir():
        return f"{name} does not hold a loadable model: {first}"
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    absent = any(isinstance(cause, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled) for cause in causes)
    if absent and huggingface_hub.constants.HF_HUB_OFFLINE:
        place = "not in the local cache" if "/" in name else "neither a directory here nor in the local cache"
        return f"{name} is {place} and HF_HUB_OFFLINE=1 forbids fetching it"
    if answer := next((cause for cause in causes if isinstance(cause, errors.HfHubHTTPError)), None):
        return _answered(name, revision, answer)
    if absent:
        reason = " ".join(str(causes[-1]).split())
        return (
            f"{name} is not in the local cache and {huggingface_hub.constants.ENDPOINT} cannot be reached "
            f"({reason}); check the network, the proxy or HF_ENDPOINT"
        )
    return f"{name} on the hub is not a loadable model: {first}"


def _answered(name: str, revision: str | None, error: errors.HfHubHTTPError) -> str:
    status, has_token = error.response.status_code, get_token() is not None
    page = f"{huggingface_hub.constants.ENDPOINT}/{name}"
    if isinstance(error, errors.GatedRepoError) and not has_token:
        return f"{name} is gated: accept its licence at {page} and set HF_TOKEN to your access token"
    if isinstance(error, errors.GatedRepoError) and status == 403:
        return f"{name} is gated and your token's account has no access to it: ask for it at {page}"
    if isinstance(error, errors.RepositoryNotFoundError) and not isinstance(error, errors.GatedRepoError):
        if "/" not in name:
            return f"model not found: {name!r} is neither a directory here nor a model on the hub (most are owner/name)"
        remedy = "a token that may read it" if has_token else "HF_TOKEN set to a token that may read it"
        return (
            f"model not found: {name!r} is no directory here, and not on the hub or private: check it, or use {remedy}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision or 'main'!r}: see {page} for what model.revision can be"
    if isinstance(error, errors.DisabledRepoError):
        return f"{name} has been disabled on the hub: choose another model"
    if status in (401, 403):
        return f"the hub refused your access token for {name}: renew HF_TOKEN (or unset it, for open models)"
    advice = "it is busy or down, try again later" if status == 429 or status >= 500 else f"see {page}"
    return f"the hub answered {status} when asked for {name}: {advice}"
