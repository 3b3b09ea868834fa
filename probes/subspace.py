"""Subspaces of the residual stream: with a locus and class means; found by iterative nullspace projection (INLP).

A subspace of rank 1 is a `Direction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from probes.direction import Direction, Locus, Provenance, vector_digest

VANISHED = 1e-9  # relative length below which a fit has no component outside the earlier directions
Means = Float[np.ndarray, " k"]


@dataclass(frozen=True, eq=False, repr=False)
class Subspace:
    """An orthonormal basis of k directions, written at one place together.

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
