"""Geometry of contrasts at one locus: cosines, principal angles, transfer and cross-erasure.

Only directions of one locus are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Real

from probes.contrast import Contrast
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.cross_reading import Erasure, Transfer, cross_erasure, fit_erasers, transfer
from probes.geometry.fitted_direction import Fit, fit_with_null
from probes.geometry.subspaces import Angles, compare_reading_subspaces, reading_subspace
from probes.means import difference_in_means


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
    fit: Fit = difference_in_means,
    n: int = 199,
    seed: int = 0,
) -> LocusGeometry:
    """Measure one locus.

    Args:
        X: activations; only the contrasts' rows need be finite.
        contrasts: with different names. Fits use the train part, AUROCs the test part; a group has one name and one
            part in all of them.
        k: the dimension of the reading subspaces.
        fit: (X, y) -> vector, the direction of a contrast.
        n: the number of permuted labellings.
        seed: of the permutations.

    Raises:
        ValueError: names repeat, a train or test part lacks a class, activations are not finite, or a group is in the
            train part of one contrast and the test part of another; names the locus.
    """
    try:
        return _geometry(X, layer, position, contrasts, k, fit, n, seed)
    except ValueError as error:
        raise ValueError(f"layer {layer}, {position}: {error}") from error


def _geometry(
    X: np.ndarray, layer: int, position: str, contrasts: Sequence[Contrast], k: int, fit: Fit, n: int, seed: int
) -> LocusGeometry:
    names = [c.name for c in contrasts]
    if len(set(names)) < len(names):
        raise ValueError(f"contrasts need different names; got {', '.join(names)}")
    used = np.unique(np.concatenate([c.rows for c in contrasts]))
    X = np.asarray(X)[used].astype(np.float64)
    fits = [
        fit_with_null(X, replace(c, rows=np.searchsorted(used, c.rows)), fit=fit, n=n, seed=seed) for c in contrasts
    ]
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
