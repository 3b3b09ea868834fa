"""LoRA adapters (PEFT), merged into the weights when a model is loaded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from transformers import PreTrainedModel

from extract.errors import UserError
from extract.model.fingerprint import fingerprint
from extract.shipped import ROOT

CONFIG = "adapter_config.json"
BASE_KEY = "base_fingerprint"  # in adapter_config.json, where this project wrote the adapter


def merged(model: PreTrainedModel, adapter: str) -> PreTrainedModel:
    """Return the model with an adapter's weights added in.

    Args:
        model: in float32; a cast of the sum rounds once, so that bfloat16 weights are the cast of those in float32.

    Raises:
        UserError: the adapter is not there, was made for another base, or cannot be read.
    """
    folder = next((path for path in (Path(adapter), ROOT / adapter) if (path / CONFIG).is_file()), None)
    if folder is None:
        raise UserError(f"no adapter in {adapter}: expected a directory with {CONFIG}")
    if find_spec("peft") is None:
        raise UserError(f"{adapter}: adapters need the extra `models`: pip install 'refusal-probes[models]'")
    from peft import PeftModel

    _check_base(model, folder)
    try:
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except Exception as error:  # peft and safetensors raise classes of their own
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"the adapter {adapter} does not fit {model.name_or_path}: {said[0]}") from error


def _check_base(model: PreTrainedModel, folder: Path) -> None:
    """Raise if the adapter says that it was made for other weights."""
    try:
        expected = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get(BASE_KEY)
    except ValueError:
        raise UserError(f"{folder / CONFIG} is not valid JSON") from None
    if expected is not None and expected != fingerprint(model):
        raise UserError(f"the adapter {folder} was made for other weights than those of {model.name_or_path}")
