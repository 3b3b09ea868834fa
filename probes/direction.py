"""A direction in the residual stream: unit norm, where it belongs, the class means along it, how it came to be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


@dataclass(frozen=True)
class Locus:
    """Where a probe or direction belongs."""

    site: str
    layer: int
    position: str


@dataclass(frozen=True)
class Direction:
    """A unit vector whose positive end is the declining class.

    `mean_positive` and `mean_negative` are the classes' mean projections onto it, in residual-stream units;
    `later_means` are the same, (positive, negative), at later layers, where they were asked for.
    """

    name: str
    vector: np.ndarray  # (d_model,) float32, unit norm
    locus: Locus
    mean_positive: float
    mean_negative: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    later_means: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        norm = float(np.linalg.norm(self.vector))
        if self.vector.ndim != 1 or not np.isclose(norm, 1.0, atol=1e-4):
            raise ValueError(f"direction {self.name!r} must be one unit vector, got shape {self.vector.shape}, "
                             f"norm {norm:.4g}")  # fmt: skip

    def project(self, X: np.ndarray) -> np.ndarray:
        """Project (n_samples, d_model) onto the direction, in float64."""
        return X.astype(np.float64) @ self.vector.astype(np.float64)


def vector_digest(vector: np.ndarray) -> str:
    """Name a vector by its numbers."""
    return hashlib.sha256(np.ascontiguousarray(vector, dtype=np.float32).tobytes()).hexdigest()[:24]


def save_directions(directions: Sequence[Direction], path: str | Path) -> None:
    """Write directions to one safetensors file: a tensor each, the rest as JSON metadata.

    Any safetensors reader loads it; nothing of this project is needed.

    Raises:
        ValueError: two directions have the same name.
    """
    names = [d.name for d in directions]
    if len(set(names)) < len(names):
        raise ValueError(f"directions in one file must have different names, got {', '.join(names)}")
    tensors = {d.name: np.ascontiguousarray(d.vector, dtype=np.float32) for d in directions}
    metadata = {d.name: json.dumps({k: v for k, v in asdict(d).items() if k not in ("name", "vector")},
                                    default=_plain) for d in directions}  # fmt: skip
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    save_file(tensors, partial, metadata=metadata)
    partial.replace(path)


def _plain(value: object) -> object:
    """Return a NumPy number or array as JSON can hold it: a layer of `np.arange`, a mean."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a direction's provenance must be what JSON can hold; got {type(value).__name__}")


def load_directions(path: str | Path) -> dict[str, Direction]:
    """Read directions written by `save_directions`, by name.

    Raises:
        ValueError: the file is a safetensors file of something else.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        if set(metadata) != set(file.keys()):
            raise ValueError(f"{path} was not written by save_directions: its tensors do not come with their loci")
        return {name: _direction(name, file.get_tensor(name), json.loads(metadata[name])) for name in metadata}


def _direction(name: str, vector: np.ndarray, record: dict[str, Any]) -> Direction:
    later = {int(layer): (float(on), float(off)) for layer, (on, off) in record.pop("later_means", {}).items()}
    return Direction(name=name, vector=vector, locus=Locus(**record.pop("locus")), later_means=later, **record)
