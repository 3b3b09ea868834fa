"""Fieller's interval for the ratio of two means over groups."""

from __future__ import annotations

import numpy as np
from jaxtyping import Real, Shaped
from scipy.stats import t as student

from probes.statistics.intervals import Estimate


def ratio_of_means(
    numerator: Real[np.ndarray, " samples"],
    denominator: Real[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    alpha: float = 0.05,
) -> Estimate:
    """Return mean(numerator) / mean(denominator) with Fieller's interval (1954) over groups.

    Each group counts once, by its means. The interval contains every r for which a mean of numerator - r denominator of
    zero is not rejected (Student's t over groups). If a denominator of mean zero is not rejected, it is (-inf, inf).

    Args:
        numerator, denominator: values of the same samples.
        groups: the independent group of each sample.
    """
    index = np.unique(groups, return_inverse=True)[1].reshape(-1)
    size = np.bincount(index)
    x, y = (np.bincount(index, np.asarray(values, dtype=float)) / size for values in (numerator, denominator))
    n, estimate = len(size), float(x.mean() / y.mean()) if y.mean() else float("nan")
    if n < 2:
        return Estimate(estimate, -np.inf, np.inf)
    (vxx, vxy), (_, vyy) = np.cov(x, y) / n
    q = float(student.ppf(1 - alpha / 2, n - 1)) ** 2
    a, b, c = y.mean() ** 2 - q * vyy, x.mean() * y.mean() - q * vxy, x.mean() ** 2 - q * vxx
    if a <= 0:
        return Estimate(estimate, -np.inf, np.inf)
    half = np.sqrt(max(b * b - a * c, 0.0)) / a
    return Estimate(estimate, float(b / a - half), float(b / a + half))
