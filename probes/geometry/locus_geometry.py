"""Geometry of contrasts at one locus: cosines, principal angles, transfer and cross-erasure.

Only directions of one locus are compared. Principal angles are those of reading subspaces (INLP with mass-mean probes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Real
from scipy.linalg import subspace_angles

from probes.contrast import Contrast
from probes.covariance import ShrunkCovariance, shrunk_covariance
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.cross_reading import Erasure, Transfer, cross_erasure, fit_erasers, transfer
from probes.geometry.fitted_direction import (
    FittedDirection,
    JointNull,
    PermutedP,
    against_permuted,
    check_same_locus,
    fit_with_null,
    jointly_permuted,
)
from probes.subspace import nullspace_directions


@dataclass(frozen=True)
class ReadingSubspace:
    """Orthonormal rows of a contrast's reading subspace, and those of its permuted labels."""

    fitted: FittedDirection
    rows: Float[np.ndarray, "k features"]
    permuted: Float[np.ndarray, "permutations k features"]
    covariance: ShrunkCovariance


@dataclass(frozen=True, kw_only=True)
class Angles(PermutedP):
    """Principal angles in radians, smallest first; p-values are for the cosine of the smallest angle."""

    a: str
    b: str
    angles: tuple[float, ...]


def reading_subspace(fitted: FittedDirection, k: int) -> ReadingSubspace:
    """Return the k directions of iterated nullspace projection (INLP; Ravfogel et al. 2020, arXiv 2004.07667).

    The classifier is the mass-mean probe w = C^-1 (mu+ - mu-) (Marks & Tegmark, arXiv 2310.06824), with C the shrunk
    covariance of the training rows; each further probe is fitted after projecting out the earlier ones. For this
    classifier the k directions span C^-1 theta, ..., C^-k theta, so all permuted labellings are fitted at once. (With C
    pooled within classes, w is the same up to scale; the shrinkage is held fixed.) If the covariance is nearly
    isotropic, the further directions are zero, because they are not determined.

    Two other definitions are not suitable: after projecting out a difference in means there is no difference in means
    left; and the principal components of the pairs' differences (Zou et al. 2023, arXiv 2310.01405) do not depend on
    signs, so permuting labels within pairs gives the same subspace.
    """
    X, _, _ = fitted.samples("train")
    if not 1 <= k <= X.shape[1]:
        raise ValueError(f"k must be between 1 and d_model = {X.shape[1]}; got {k}")
    covariance = shrunk_covariance(X)
    rows = _iterated(fitted.means(), covariance, k)
    return ReadingSubspace(fitted, rows[0], rows[1:], covariance)


def compare_reading_subspaces(a: ReadingSubspace, b: ReadingSubspace) -> Angles:
    """Return the principal angles between two contrasts' reading subspaces, with a permutation null.

    If the contrasts share rows, both are permuted together; each keeps the covariance of its own rows.
    """
    check_same_locus(a.fitted, b.fitted)
    joint: JointNull | None = jointly_permuted(a.fitted, b.fitted)
    if joint is not None:
        fits = _iterated(joint.a, a.covariance, len(a.rows)), _iterated(joint.b, b.covariance, len(b.rows))
        joint = JointNull(*fits, joint.n_labellings)
    labellings = a.fitted.n_labellings, b.fitted.n_labellings

    def largest_cosine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.linalg.norm(A @ np.swapaxes(B, -1, -2), ord=2, axis=(-2, -1))  # of orthonormal rows

    permuted = against_permuted(largest_cosine, (a.rows, a.permuted), (b.rows, b.permuted), joint, labellings)
    angles = tuple(principal_angles(a.rows, b.rows).tolist())
    return Angles(**vars(permuted), a=a.fitted.contrast.name, b=b.fitted.contrast.name, angles=angles)


def principal_angles(
    A: Float[np.ndarray, "k features"], B: Float[np.ndarray, "m features"]
) -> Float[np.ndarray, " angles"]:
    """Return the principal angles in radians between two row spaces, smallest first; as many as the smaller rank."""
    return subspace_angles(A.T.astype(np.float64), B.T.astype(np.float64))[::-1]


def _iterated(means: np.ndarray, covariance: ShrunkCovariance, k: int) -> np.ndarray:
    """Return orthonormal rows of the first k fits for each difference in means, (fits, k, features)."""

    def fit(earlier: np.ndarray) -> np.ndarray:
        return covariance.solve(earlier[:, -1] if earlier.shape[1] else means)

    return nullspace_directions(fit, len(means), k, means.shape[1])


@dataclass(frozen=True)
class LocusGeometry:
    """Measurements at one locus: cosines and angles per pair of contrasts, the others per ordered pair."""

    layer: int
    position: str
    cosines: tuple[Cosine, ...] = ()
    angles: tuple[Angles, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    erasures: tuple[Erasure, ...] = ()


def geometry_at(
    X: Real[np.ndarray, "samples features"],
    layer: int,
    position: str,
    contrasts: Sequence[Contrast],
    *,
    k: int = 2,
    n: int = 199,
    seed: int = 0,
) -> LocusGeometry:
    """Measure one locus; only the contrasts' rows of X need be finite.

    Contrasts have different names. Fits use the train part, AUROCs the test part; a group has one name and one part in
    all of them. `k` is the dimension of the reading subspaces, `n` the number of permuted labellings. Raises
    ValueError, naming the locus, if a part lacks a class or a group is in two parts.
    """
    try:
        return _geometry(X, layer, position, contrasts, k, n, seed)
    except ValueError as error:
        raise ValueError(f"layer {layer}, {position}: {error}") from error


def _geometry(
    X: np.ndarray, layer: int, position: str, contrasts: Sequence[Contrast], k: int, n: int, seed: int
) -> LocusGeometry:
    names = [c.name for c in contrasts]
    if len(set(names)) < len(names):
        raise ValueError(f"contrasts need different names; got {', '.join(names)}")
    used = np.unique(np.concatenate([c.rows for c in contrasts]))
    X = np.asarray(X)[used].astype(np.float64)
    fits = [fit_with_null(X, replace(c, rows=np.searchsorted(used, c.rows)), n=n, seed=seed) for c in contrasts]
    spaces = [reading_subspace(f, k) for f in fits]
    erasers = [fit_erasers(s.fitted, s.covariance) for s in spaces]
    return LocusGeometry(
        layer=layer,
        position=position,
        cosines=tuple(compare_directions(a, b) for a, b in itertools.combinations(fits, 2)),
        angles=tuple(compare_reading_subspaces(a, b) for a, b in itertools.combinations(spaces, 2)),
        transfers=tuple(transfer(a, b) for a, b in itertools.product(fits, fits)),
        erasures=tuple(
            cross_erasure(a, b, e) for (a, e), b in itertools.product(zip(fits, erasers, strict=True), fits)
        ),
    )
