"""Cosines between contrast directions at one locus: fitted, corrected for noise, and with a permutation null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.geometry.cosine_noise import noise_free_cosine
from probes.geometry.fitted_direction import FittedDirection, check_same_locus
from probes.geometry.permutation_null import PermutedP, against_permuted, jointly_permuted, shared_rows
from probes.means import difference_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate


@dataclass(frozen=True)
class Cosine:
    """The cosine of two contrasts' directions.

    `fitted` is the cosine of the two fitted vectors. Sampling noise biases it towards 0 (or, if the contrasts share
    rows, towards a value caused by those rows), so it does not estimate the cosine of the true directions. `noise_free`
    does (see `cosine_noise`); its interval is over groups. `reliability_a` and `_b` are the noise-free shares of the
    squared lengths.
    """

    a: str
    b: str
    fitted: float
    noise_free: Estimate
    reliability_a: float
    reliability_b: float
    permuted: PermutedP  # two-sided, of the absolute fitted cosine
    n_shared: int


def compare_directions(a: FittedDirection, b: FittedDirection, *, alpha: float = 0.05) -> Cosine:
    """Return the cosine of two contrasts' directions with its null.

    The noise-free cosine is for differences in means; for other fits it is NaN.

    Raises:
        ValueError: the two are not from one locus.
    """
    check_same_locus(a, b)
    means = a.fit is difference_in_means and b.fit is difference_in_means
    free, reliability = noise_free_cosine(a, b, alpha) if means else (NO_ESTIMATE, (float("nan"), float("nan")))
    return Cosine(
        a=a.contrast.name,
        b=b.contrast.name,
        fitted=float(_cosines(a.vector[None], b.vector[None])[0]),
        noise_free=free,
        reliability_a=reliability[0],
        reliability_b=reliability[1],
        permuted=against_permuted(
            lambda u, v: np.abs(_cosines(u, v)),
            (a.vector, a.permuted),
            (b.vector, b.permuted),
            jointly_permuted(a, b),
            (a.n_labellings, b.n_labellings),
        ),
        n_shared=len(shared_rows(a, b)),
    )


def _cosines(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the cosines of rows; the cosine with a zero row is 0."""
    length = np.linalg.norm(u, axis=-1) * np.linalg.norm(v, axis=-1)
    return (u * v).sum(axis=-1) / np.where(length > 0, length, 1.0)
