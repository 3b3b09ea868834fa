"""A unit direction in the residual stream: its locus, the class means along it, its provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Real

Provenance = Mapping[str, object]  # what JSON can hold


@dataclass(frozen=True)
class Locus:
    """Where a probe or direction belongs."""

    site: str
    layer: int
    position: str


@dataclass(frozen=True, eq=False, repr=False)
class Direction:
    """A unit vector whose positive end is the declining class.

    `mean_positive` and `mean_negative` are the classes' mean projections onto it, in residual-stream units;
    `later_means` are the same, (positive, negative), at later layers, where they were asked for.
    """

    name: str
    vector: Float[np.ndarray, ...]  # (features,) float32, unit norm; checked below
    locus: Locus
    mean_positive: float
    mean_negative: float
    provenance: Provenance = field(default_factory=dict)
    later_means: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        norm = float(np.linalg.norm(self.vector))
        if self.vector.ndim != 1 or not np.isclose(norm, 1.0, atol=1e-4):
            raise ValueError(
                f"direction {self.name!r} must be one unit vector, got shape {self.vector.shape}, norm {norm:.4g}"
            )

    def __eq__(self, other: object) -> bool:
        """Equal directions have the same name, locus, means and provenance, and the same vector, number by number."""
        if not isinstance(other, Direction):
            return NotImplemented
        mine, theirs = vars(self) | {"vector": None}, vars(other) | {"vector": None}
        return mine == theirs and np.array_equal(self.vector, other.vector)

    def __hash__(self) -> int:
        return hash((self.name, self.locus, self.mean_positive, self.mean_negative))

    def __repr__(self) -> str:
        at = f"{self.locus.site} layer {self.locus.layer} {self.locus.position}"
        means = f"class means {self.mean_negative:.2f} and {self.mean_positive:.2f}"
        return f"Direction({self.name!r}, {at}, d_model {len(self.vector)}, {means})"

    def project(self, X: Real[np.ndarray, "samples features"]) -> Float[np.ndarray, " samples"]:
        """Project samples onto the direction, in float64."""
        return X.astype(np.float64) @ self.vector.astype(np.float64)


def vector_digest(vector: Float[np.ndarray, " features"]) -> str:
    """Return a short hash of a vector's numbers."""
    return hashlib.sha256(np.ascontiguousarray(vector, dtype=np.float32).tobytes()).hexdigest()[:24]


def cosine(a: Float[np.ndarray, " features"], b: Float[np.ndarray, " features"]) -> float:
    """Return the cosine of the angle between two vectors."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
