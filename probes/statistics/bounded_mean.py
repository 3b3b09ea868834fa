"""Score test and interval of the mean of bounded values, valid also if all values are equal.

The variance is that of the most likely distribution, on the observed values and the two bounds, with the tested mean (a
restricted maximum likelihood, as in the score intervals of Wilson, Tango (1998) and Farrington & Manning (1990) for
rates and their differences). For values 0 and 1 it is Wilson's interval.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.stats import norm

from probes.statistics.intervals import Estimate

HALVINGS = 40  # bisection steps for the multiplier, far finer than the limits need


def zero_mean_score(
    values: Float[np.ndarray, "*tests values"],
    shares: Float[np.ndarray, "*tests values"],
    low: Float[np.ndarray, "*tests"],
    high: Float[np.ndarray, "*tests"],
) -> Float[np.ndarray, "*tests"]:
    """Return mean^2 / variance per unit under a mean of zero; times the number of units, it is chi-squared with 1 df.

    Args:
        values: distinct values of the units.
        shares: the share of the units with each value, summing to 1.
        low, high: bounds of the values, low < 0 < high.
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
    z2, near = float(norm.ppf(1 - alpha / 2)) ** 2, 1e-9 * (high - low)

    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    def gap(m: float) -> float:
        bounds = np.array(low - m), np.array(high - m)
        return float(len(values) * zero_mean_score(seen - m, counts / len(values), *bounds) - z2)

    lowest, highest = low + near, high - near  # at a bound only one distribution has this mean
    inside = min(max(mean, lowest), highest)
    below = low if mean <= lowest or gap(lowest) <= 0 else float(brentq(gap, lowest, inside))
    above = high if mean >= highest or gap(highest) <= 0 else float(brentq(gap, inside, highest))
    return Estimate(mean, below, above)
