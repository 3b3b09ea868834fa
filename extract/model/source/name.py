"""From a model's name to the directory of its files, or to a hub id."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from extract.errors import UserError
from extract.model.source.gguf import SUFFIX, dequantised
from extract.model.source.packaged import PREFIX, packaged_model
from extract.progress import Reporter
from extract.shipped import ROOT


def resolve(name: str, reporter: Reporter | None = None) -> str:
    """Return the directory of a model, or the name itself if it is a hub id; a GGUF file is dequantised into the cache.

    Raises:
        UserError: there is no such model, or its files cannot be read.
    """
    path = locate(name)
    if path is not None and path.suffix == SUFFIX and path.is_file():
        path = dequantised(path, reporter or Reporter())
    return name if path is None else str(path)


def locate(name: str) -> Path | None:
    """Return the directory or the GGUF file that a model's name stands for, None for a hub id; opens nothing.

    `package:NAME` is the model inside an installed package. A directory that holds a GGUF file and no config.json
    stands for that file. A path that does not exist is also searched where the packages are installed, for shipped
    organisms.

    Raises:
        UserError: there is no such model.
    """
    if name.startswith(PREFIX):
        return _file_in(packaged_model(name.removeprefix(PREFIX)))
    for path in (Path(name), ROOT / name):
        if name and (path.is_dir() or (path.suffix == SUFFIX and path.is_file())):
            return _file_in(path)
    if not _is_hub_id(name):
        raise UserError(f"model not found: {name!r} is neither a directory nor a hub id of the form owner/name")
    return None


def _file_in(path: Path) -> Path:
    """Return the GGUF file that a directory holds instead of a model's files, else the path."""
    held = [] if (path / "config.json").is_file() else sorted(path.glob(f"*{SUFFIX}"))
    if len(held) > 1:
        raise UserError(f"{path} holds {len(held)} GGUF files; name one, such as {held[0]}")
    return held[0] if held else path


def _is_hub_id(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True
