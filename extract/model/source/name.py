"""From a model's name to the directory of its files, or to a hub id."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from extract.errors import UserError
from extract.model.source.gguf import SUFFIX, dequantised
from extract.model.source.packaged import PREFIX, packaged_model
from extract.shipped import ROOT


def resolve(name: str) -> str:
    """Return the directory of a model, or the name itself if it is a hub id.

    `package:NAME` is the model inside an installed package. A GGUF file, or a directory that holds one and no
    config.json, is dequantised into the cache. A path that does not exist is also searched where the packages are
    installed, for shipped organisms.

    Raises:
        UserError: there is no such model, or its files cannot be read.
    """
    if name.startswith(PREFIX):
        return str(_opened(packaged_model(name.removeprefix(PREFIX))))
    for path in (Path(name), ROOT / name):
        if name and (path.is_dir() or (path.suffix == SUFFIX and path.is_file())):
            return str(_opened(path))
    if not _is_hub_id(name):
        raise UserError(f"model not found: {name!r} is neither a directory nor a hub id of the form owner/name")
    return name


def _opened(path: Path) -> Path:
    """Return the path, or the directory of the GGUF file that it is or holds."""
    if path.suffix == SUFFIX and path.is_file():
        return dequantised(path)
    held = [] if (path / "config.json").is_file() else sorted(path.glob(f"*{SUFFIX}"))
    if len(held) > 1:
        raise UserError(f"{path} holds {len(held)} GGUF files; name one, such as {held[0]}")
    return dequantised(held[0]) if held else path


def _is_hub_id(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True
