"""Directions in a safetensors file: one tensor each, with locus, class means and provenance as JSON metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from extract.atomic_write import atomic_path
from extract.errors import UserError, in_one_line
from probes.direction import Direction, Locus


def save_directions(directions: Sequence[Direction], path: str | os.PathLike[str]) -> None:
    """Write a tensor each, with the rest as JSON metadata, to one safetensors file.

    Raises:
        UserError: names repeat, or there is no such folder.

    >>> import refusal
    >>> directions = refusal.load_directions("runs/quickstart/directions.safetensors")
    >>> refusal.save_directions([directions["normative_write"]], "normative.safetensors")
    """
    if wrong := [type(d).__name__ for d in directions if not isinstance(d, Direction)]:
        raise UserError(f"give a list of Directions, as of fit_direction; got {wrong[0]}")
    if not Path(path).parent.is_dir():
        raise UserError(f"there is no folder {Path(path).parent}; make it first")
    names = [d.name for d in directions]
    if len(set(names)) < len(names):
        raise UserError(f"directions in one file must have different names, got {', '.join(names)}")
    tensors = {d.name: np.ascontiguousarray(d.vector, dtype=np.float32) for d in directions}
    metadata = {
        d.name: json.dumps(
            {k: v for k, v in asdict(d).items() if k not in ("name", "vector") and v == v},  # NaN: not known
            default=_plain,
        )
        for d in directions
    }
    with atomic_path(Path(path)) as partial:
        partial.write_bytes(save(tensors, metadata=metadata))


def _plain(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a direction's provenance must be JSON values; got {type(value).__name__}")


def load_directions(path: str | os.PathLike[str]) -> dict[str, Direction]:
    """Read directions written by `save_directions`, by name, in the order of names; UserError: it is another file."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if set(metadata) == set(file.keys()):
                read = {name: (file.get_tensor(name), json.loads(metadata[name])) for name in sorted(metadata)}
                return {name: _direction(name, *held) for name, held in read.items()}
    except SafetensorError as error:
        raise UserError(f"{path} is no safetensors file: {in_one_line(error)}") from None
    raise UserError(f"{path} was not written by save_directions: its tensors have no loci in the metadata")


def _direction(name: str, vector: Float[np.ndarray, " d_model"], record: dict[str, Any]) -> Direction:
    later = {int(layer): (float(on), float(off)) for layer, (on, off) in record.pop("later_means", {}).items()}
    return Direction(name=name, vector=vector, locus=Locus(**record.pop("locus")), later_means=later, **record)
