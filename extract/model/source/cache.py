"""The cache of model files that can be made again, each folder whole or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from extract.errors import UserError

CACHE_VARIABLE = "REFUSAL_CACHE"


def cache_folder() -> Path:
    """Return the folder for files that can be made again: $REFUSAL_CACHE, or refusal-probes in the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else user / "refusal-probes"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache, after `make(folder)` has filled it if it is not there.

    It is made beside its place and then renamed: another process finds the whole of it or nothing.

    Raises:
        UserError: the cache cannot be written.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    made = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        make(made)
        made.chmod(0o755)
        made.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was first
            raise UserError(
                f"the cache {folder} cannot be written: {error.strerror or error}; "
                f"set {CACHE_VARIABLE} to another folder"
            ) from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
    return folder
