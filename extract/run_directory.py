"""Files of a run directory, by the name of the directory or of the file."""

from __future__ import annotations

import os
from pathlib import Path

from extract.errors import UserError

MADE_BY = {
    "activations.h5": "refusal extract CONFIG",
    "completions.jsonl": "refusal run CONFIG",
    "dials.safetensors": "refusal steer CONFIG",
    "directions.safetensors": "refusal probe CONFIG",
}


def is_run(path: Path) -> bool:
    """Return whether a path is a run directory: one with the configuration of its run."""
    return (path / "config.yaml").is_file()


def file_of_run(path: str | os.PathLike[str], name: str) -> Path:
    """Return the file with this name in a run directory; a path that is no directory is returned as it is."""
    given = Path(path)
    if not given.is_dir():
        return given
    if not (given / name).is_file():
        raise UserError(f"{given} is a directory without {name}; make it with: {MADE_BY[name]}")
    return given / name


def file_to_write(path: Path, name: str, ending: str) -> Path:
    """Return where a result is written: `path` itself if it has the ending of such a file, else `name` in it."""
    if path.is_dir() or not path.suffix[1:].isalpha():  # v1.2 is a directory's name
        return path / name
    if path.suffix != ending:
        raise UserError(f"--out {path}: give a directory, or a name that ends in {ending}")
    return path
