"""How much slower one way is than another, from times taken in pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import quantile_test


class Interval(NamedTuple):
    """A number with its 95 % interval."""

    low: float
    point: float
    high: float


def ratio_interval(times: Float[np.ndarray, " pairs"], of: Float[np.ndarray, " pairs"]) -> Interval:
    """Return the median of the paired ratios `times / of` with its exact 95 % interval (order statistics).

    On a machine that others use, a time is now and then far too long. The mean and its t interval follow such a pair;
    the median does not, its interval assumes no shape of the noise, and so no pair has to be left out. It needs
    six pairs; with fewer the interval is unbounded.
    """
    ratios = np.log(times) - np.log(of)
    found = quantile_test(ratios, q=0.0, p=0.5).confidence_interval(0.95)
    low, high = (-np.inf if np.isnan(found.low) else found.low), (np.inf if np.isnan(found.high) else found.high)
    return Interval(*(float(np.exp(value)) for value in (low, np.median(ratios), high)))


def difference_interval(times: Float[np.ndarray, " pairs"], of: Float[np.ndarray, " pairs"]) -> Interval:
    """Return the median of the paired differences `times - of`, as `ratio_interval` does for ratios."""
    return Interval(*map(float, np.log(ratio_interval(np.exp(times - of), np.ones_like(of)))))
