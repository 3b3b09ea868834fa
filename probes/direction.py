"""Unit directions and subspaces of the residual stream: locus, class means, provenance; nullspace projection (INLP)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Real

Provenance = Mapping[str, object]  # what JSON can hold

MEANS = ("mean_positive", "mean_negative")


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
    `later_means` are the same, (positive, negative), at later layers, where they were asked for. A vector of another
    tool has no class means (NaN); `length` is its norm there, and which end declines is what that tool made of it.

    >>> import numpy as np, refusal
    >>> from probes import Locus
    >>> refusal.Direction("mine", np.eye(4)[0], Locus("resid_post", 3, "post_last"), 2.0, -1.0)
    Direction('mine', resid_post layer 3 post_last, d_model 4, class means -1.00 and 2.00)
    """

    name: str
    vector: Float[np.ndarray, ...]  # (features,) float32, unit norm; checked below
    locus: Locus
    mean_positive: float = math.nan
    mean_negative: float = math.nan
    provenance: Provenance = field(default_factory=dict)
    later_means: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    length: float | None = None

    def __post_init__(self) -> None:
        norm = float(np.linalg.norm(self.vector))
        if self.vector.ndim != 1 or not np.isclose(norm, 1.0, atol=1e-4):
            raise ValueError(
                f"direction {self.name!r} must be one unit vector, got shape {self.vector.shape}, norm {norm:.4g}"
            )
        if self.has_means == (self.length is not None) or not math.isfinite(self.length or 0):
            raise ValueError(f"direction {self.name!r} needs either both class means or a length")

    @property
    def has_means(self) -> bool:
        """Whether the class means are known."""
        return math.isfinite(self.mean_positive) and math.isfinite(self.mean_negative)

    @property
    def gap(self) -> float:
        """What adding it once adds, in residual-stream units: the distance of the class means, or its length."""
        return self.mean_positive - self.mean_negative if self.length is None else self.length

    def __eq__(self, other: object) -> bool:
        """Equal directions have the same name, locus, means and provenance, and the same vector, number by number."""
        if not isinstance(other, Direction):
            return NotImplemented
        without = {"vector": None} | ({} if self.has_means or other.has_means else dict.fromkeys(MEANS))  # NaN
        mine, theirs = vars(self) | without, vars(other) | without
        return mine == theirs and np.array_equal(self.vector, other.vector)

    def __hash__(self) -> int:
        return hash((self.name, self.locus, self.mean_positive, self.mean_negative))

    def __repr__(self) -> str:
        at = f"{self.locus.site} layer {self.locus.layer} {self.locus.position}"
        means = f"class means {self.mean_negative:.2f} and {self.mean_positive:.2f}"
        means = means if self.has_means else f"length {self.length:.2f}, no class means"
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


# -- subspaces ---------------------------------------------------------------------------------------------------------

VANISHED = 1e-9  # relative length below which a fit has no component outside the earlier directions
Means = Float[np.ndarray, " k"]


@dataclass(frozen=True, eq=False, repr=False)
class Subspace:
    """An orthonormal basis of k directions, written at one place together; of rank 1 it is a `Direction`.

    `mean_positive` and `mean_negative` are the mean projections of the declining and the answering class on each
    basis vector, in residual-stream units; `later_means` are the same, (positive, negative), at later layers.

    Raises:
        ValueError: the basis is not orthonormal, or some class means are not one number for each of its vectors.
    """

    name: str
    basis: Float[np.ndarray, "k d_model"]  # float32
    locus: Locus
    mean_positive: Means
    mean_negative: Means
    provenance: Provenance = field(default_factory=dict)
    later_means: Mapping[int, tuple[Means, Means]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = np.shape(self.basis)
        if len(shape) != 2 or shape[0] < 1 or not np.allclose(self.basis @ self.basis.T, np.eye(shape[0]), atol=1e-4):
            raise ValueError(f"subspace {self.name!r} must be orthonormal vectors, one a row; got shape {shape}")
        given = [self.mean_positive, self.mean_negative, *(m for both in self.later_means.values() for m in both)]
        if wrong := [np.shape(means) for means in given if np.shape(means) != (shape[0],)]:
            raise ValueError(
                f"subspace {self.name!r} of rank {shape[0]} needs as many class means; got shape {wrong[0]}"
            )

    def __repr__(self) -> str:
        at = f"{self.locus.site} layer {self.locus.layer} {self.locus.position}"
        return f"Subspace({self.name!r}, {at}, rank {self.rank}, d_model {self.basis.shape[1]})"

    @property
    def rank(self) -> int:
        """The number of directions."""
        return len(self.basis)

    @property
    def digest(self) -> str:
        """A short hash of the basis."""
        return vector_digest(self.basis)

    @classmethod
    def of(cls, *directions: Direction) -> Subspace:
        """Return orthogonal directions of one locus as a subspace; it has the later layers at which all have means.

        Raises:
            ValueError: their loci differ, or they are not orthogonal.
        """
        first = directions[0]
        if elsewhere := [d.locus for d in directions if d.locus != first.locus]:
            raise ValueError(f"directions of one subspace must have one locus, got {first.locus} and {elsewhere[0]}")
        shared = set.intersection(*(set(d.later_means) for d in directions))
        return cls(
            name=first.name,
            basis=np.stack([np.asarray(d.vector, dtype=np.float32) for d in directions]),
            locus=first.locus,
            mean_positive=np.array([d.mean_positive for d in directions]),
            mean_negative=np.array([d.mean_negative for d in directions]),
            provenance=first.provenance,
            later_means={at: _means([d.later_means[at] for d in directions]) for at in sorted(shared)},
        )

    @property
    def directions(self) -> list[Direction]:
        """The basis vectors as directions with their class means, named NAME_1, NAME_2, …"""
        return [replace(self.direction(i), name=f"{self.name}_{i + 1}") for i in range(self.rank)]

    def direction(self, i: int) -> Direction:
        """Return one basis vector as a direction, with its class means."""
        return Direction(
            name=self.name,
            vector=self.basis[i],
            locus=self.locus,
            mean_positive=float(self.mean_positive[i]),
            mean_negative=float(self.mean_negative[i]),
            provenance=self.provenance,
            later_means={at: (float(on[i]), float(off[i])) for at, (on, off) in self.later_means.items()},
        )


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[Means, Means]:
    return np.array([on for on, _ in pairs]), np.array([off for _, off in pairs])


def nullspace_directions(
    fit: Callable[[Float[np.ndarray, "fits removed features"]], Float[np.ndarray, "fits features"]],
    n_fits: int,
    k: int,
    n_features: int,
) -> Float[np.ndarray, "fits k features"]:
    """Return k orthonormal directions of each fit by INLP (arXiv 2004.07667); zero where it has no further one.

    `fit` returns the next direction of each fit, of any length, given the orthonormal ones so far.
    """
    basis = np.zeros((n_fits, k, n_features))
    for i in range(k):
        fitted = fit(basis[:, :i])
        left = fitted
        for _ in range(2):  # twice is enough to be orthogonal to rounding (Kahan)
            left = project_out(left[:, None], basis[:, :i])[:, 0]
        before, length = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (fitted, left))
        basis[:, i] = np.where(length > VANISHED * before, left / np.where(length > 0, length, 1), 0)
    return basis


def project_out(
    X: Float[np.ndarray, "*fits samples features"], directions: Float[np.ndarray, "*fits k features"]
) -> Float[np.ndarray, "*fits samples features"]:
    """Project orthonormal directions out of samples."""
    return X - (X @ np.swapaxes(directions, -1, -2)) @ directions
