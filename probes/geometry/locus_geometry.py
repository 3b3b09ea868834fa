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
from probes.direction import nullspace_directions
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.cross_reading import Erasure, Transfer, cross_erasure, transfer
from probes.geometry.fitted_direction import (
    Fits,
    FittedDirection,
    PermutedP,
    against_permuted,
    check_same_locus,
    fit_with_null,
)


@dataclass(frozen=True, kw_only=True)
class Angles(PermutedP):
    """Principal angles in radians, smallest first; p-values are for the cosine of the smallest angle."""

    a: str
    b: str
    angles: tuple[float, ...]


def reading_subspaces(fitted: FittedDirection, k: int) -> Float[np.ndarray, "fits k features"]:
    """Return orthonormal rows of iterated nullspace projection (INLP; arXiv 2004.07667), of each labelling.

    The classifier is the mass-mean probe w = C^-1 (mu+ - mu-) (Marks & Tegmark, arXiv 2310.06824), with C the shrunk
    covariance of the training rows, so the k directions span C^-1 theta, ..., C^-k theta. (With C pooled within
    classes, w is the same up to scale; the shrinkage is held fixed.) If the covariance is nearly isotropic, the further
    directions are zero, because they are not determined. Two other definitions are not suitable: after projecting out a
    difference in means there is none left; and the principal components of the pairs' differences (Zou et al. 2023,
    arXiv 2310.01405) do not depend on signs, so permuting labels within pairs gives the same subspace.
    """
    if not 1 <= k <= fitted.X.shape[1]:
        raise ValueError(f"k must be between 1 and d_model = {fitted.X.shape[1]}; got {k}")
    return _iterated(fitted.means(), fitted, k)


def _iterated(means: Fits, fitted: FittedDirection, k: int) -> Fits:
    def fit(earlier: np.ndarray) -> np.ndarray:
        return fitted.covariance.solve(earlier[:, -1] if earlier.shape[1] else means)

    return nullspace_directions(fit, len(means), k, means.shape[1])


def compare_reading_subspaces(a: FittedDirection, b: FittedDirection, rows_a: Fits, rows_b: Fits) -> Angles:
    """Return the principal angles between two contrasts' reading subspaces, with a permutation null.

    If the contrasts share rows, both are permuted together; each keeps the covariance of its own rows.
    """
    check_same_locus(a, b)

    def largest_cosine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.linalg.norm(A @ np.swapaxes(B, -1, -2), ord=2, axis=(-2, -1))  # of orthonormal rows

    permuted = against_permuted(
        largest_cosine, (a, rows_a), (b, rows_b), lambda means, of: _iterated(means, of, rows_a.shape[1])
    )
    angles = subspace_angles(rows_a[0].T, rows_b[0].T)[::-1]
    return Angles(**vars(permuted), a=a.contrast.name, b=b.contrast.name, angles=tuple(angles.tolist()))


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
    spaces = [reading_subspaces(f, k) for f in fits]
    return LocusGeometry(
        layer=layer,
        position=position,
        cosines=tuple(compare_directions(a, b) for a, b in itertools.combinations(fits, 2)),
        angles=tuple(
            compare_reading_subspaces(a, b, of_a, of_b)
            for (a, of_a), (b, of_b) in itertools.combinations(zip(fits, spaces, strict=True), 2)
        ),
        transfers=tuple(transfer(a, b) for a, b in itertools.product(fits, fits)),
        erasures=tuple(cross_erasure(a, b) for a, b in itertools.product(fits, fits)),
    )
