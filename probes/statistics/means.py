"""Means over groups with intervals: of bounded values, their ratio (Fieller), and a sum over strata.

The mean of bounded values has a score interval, valid also if all values are equal. The variance is that of the most
likely distribution, on the observed values and the two bounds, with the tested mean (a restricted maximum likelihood,
as in the score intervals of Wilson, Tango (1998) and Farrington & Manning (1990) for rates and their differences). For
values 0 and 1 it is Wilson's interval.

A sum of stratum means of bounded differences has a width also where nothing varies. Each stratum gets two groups more,
one at either bound, as Bonett & Price (2012, J. Educ. Behav. Stat. 37:479) add one to both discordant cells of a paired
table. Its mean and variance are those with them (an adjusted Wald interval), and the width shrinks with the groups.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Real, Shaped
from scipy.special import bdtr, ndtri, stdtrit

from probes.statistics.intervals import NO_ESTIMATE, Estimate, effective_number, group_means

HALVINGS = 40  # bisection steps for the multiplier, far finer than the limits need


def zero_mean_score(
    values: Float[np.ndarray, "*tests values"],
    shares: Float[np.ndarray, "*tests values"],
    low: Float[np.ndarray, "*tests"],
    high: Float[np.ndarray, "*tests"],
) -> Float[np.ndarray, "*tests"]:
    """Return mean^2 / variance per unit under a mean of zero; times the number of units, it is chi-squared with 1 df.

    `values` are the distinct ones of the units, `shares` sum to 1; low < 0 < high are the bounds of the values.
    """
    mean = (shares * values).sum(-1)
    below, above = -(1 - 1e-12) / high, -(1 - 1e-12) / low
    for _ in range(HALVINGS):  # the restricted share of a value is its share / (1 + multiplier * value)
        middle = (below + above) / 2
        positive = (shares * values / (1 + middle[..., None] * values)).sum(-1) > 0
        below, above = np.where(positive, middle, below), np.where(positive, above, middle)
    restricted = shares / (1 + below[..., None] * values)
    unseen = np.maximum(1 - restricted.sum(-1), 0)  # at the bound that moves the mean back to zero
    variance = (restricted * values**2).sum(-1) + unseen * np.where(mean < 0, high, low) ** 2
    return np.asarray(np.where(mean == 0, 0.0, mean**2 / np.maximum(variance, 1e-300)))


def mean_interval(
    values: Real[np.ndarray, " units"] | Bool[np.ndarray, " units"], low: float, high: float, alpha: float = 0.05
) -> Estimate:
    """Return the interval of the mean of independent values within [low, high]; no values give (nan, low, high).

    For groups of different sizes pass one value per group, its mean; groups then count equally.
    """
    values = np.asarray(values, dtype=float)
    if len(values) == 0:
        return Estimate(float("nan"), low, high)
    seen, counts = np.unique(values, return_counts=True)
    mean = float(seen[0] if len(seen) == 1 else values.mean())  # the mean of equal numbers has a rounding error
    z2, near = float(ndtri(1 - alpha / 2)) ** 2, 1e-9 * (high - low)

    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    def gap(m: float) -> float:
        bounds = np.array(low - m), np.array(high - m)
        return float(len(values) * zero_mean_score(seen - m, counts / len(values), *bounds) - z2)

    lowest, highest = low + near, high - near  # at a bound only one distribution has this mean
    inside = min(max(mean, lowest), highest)
    below = low if mean <= lowest or gap(lowest) <= 0 else float(brentq(gap, lowest, inside))
    above = high if mean >= highest or gap(highest) <= 0 else float(brentq(gap, inside, highest))
    return Estimate(mean, below, above)


def ratio_of_means(
    numerator: Real[np.ndarray, " samples"],
    denominator: Real[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
) -> Estimate:
    """Return mean(numerator) / mean(denominator) of the same samples with Fieller's interval (1954) over groups.

    Each group counts once, by its means. The interval contains every r for which a mean of numerator - r denominator of
    zero is not rejected (Student's t over groups). If a denominator of mean zero is not rejected, it is (-inf, inf).
    """
    x, y = (group_means(values, groups) for values in (numerator, denominator))
    n, estimate = len(x), float(x.mean() / y.mean()) if y.mean() else float("nan")
    if n < 2:
        return Estimate(estimate, -np.inf, np.inf)
    (vxx, vxy), (_, vyy) = np.cov(x, y) / n
    q = float(stdtrit(n - 1, 0.975)) ** 2
    a, b, c = y.mean() ** 2 - q * vyy, x.mean() * y.mean() - q * vxy, x.mean() ** 2 - q * vxx
    if a <= 0:
        return Estimate(estimate, -np.inf, np.inf)
    half = np.sqrt(max(b * b - a * c, 0.0)) / a
    return Estimate(estimate, float(b / a - half), float(b / a + half))


def sum_of_means(
    values: Float[np.ndarray, " samples"],
    strata: Shaped[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    bounds: Mapping[str, float],
) -> Estimate:
    """Return the sum over strata of the mean of the values, with an interval over groups.

    Values of a stratum s are between -bounds[s] and bounds[s]; a stratum without samples gives (nan, -sum, sum). A
    group may have samples of several strata. Group contributions are inflated by their leverage (CR3, Bell & McCaffrey
    2002); the degrees of freedom are the smallest effective number of groups of a stratum, minus one.
    """
    most = float(sum(bounds.values()))
    _, code = np.unique(groups, return_inverse=True)
    off = np.zeros(code.max() + 1 if len(code) else 1)
    estimate = centre = variance = 0.0
    freedom = np.inf
    for name, bound in bounds.items():
        mine = strata == name
        if not mine.any():
            return Estimate(float("nan"), -most, most)
        sizes = np.bincount(code[mine], minlength=len(off))
        independent = effective_number(sizes)
        added = 1 / (independent + 2)  # weight of each of the two groups
        mean, kept = float(values[mine].mean()), 1 - 2 * added
        middle, inflate = kept * mean, np.sqrt(1 - added) / (1 - kept * sizes / mine.sum())
        off += np.bincount(code[mine], values[mine] - middle, len(off)) * inflate * kept / mine.sum()
        variance += 2 * (bound**2 + middle**2) * (added**2) / (1 - added)
        estimate, centre, freedom = estimate + mean, centre + middle, min(freedom, independent - 1)
    half = float(stdtrit(max(1.0, freedom), 0.975) * np.sqrt(variance + (off**2).sum()))
    return Estimate(estimate, max(-most, min(estimate, centre - half)), min(most, max(estimate, centre + half)))


def grouped_median(values: Real[np.ndarray, " samples"], groups: Shaped[np.ndarray, " samples"]) -> Estimate:
    """Return the median over groups, each counting once by its mean, between the order statistics of the sign test.

    They are the k-th from either end, with the largest k for which fewer than 2.5 % of medians lie beyond each
    (Conover 1999, section 3.2); infinite where there is none.
    """
    ordered = np.sort(group_means(values, groups)) if len(values) else np.zeros(0)
    if not (n := len(ordered)):
        return NO_ESTIMATE
    k = int((bdtr(np.arange(n), n, 0.5) <= 0.025).sum())  # that so many lie below the median is as rare
    low, high = (float(ordered[k - 1]), float(ordered[n - k])) if k else (-np.inf, np.inf)
    return Estimate(float(np.median(ordered)), low, high).counted(len(values), groups)
