"""Tango's score interval of a paired difference of rates (Tango 1998, Statistics in Medicine 17:891).

It inverts the score test of each difference, with the rate of opposite discordant pairs at its most likely value under
that difference. If a decision depends on one limit, its error rate is closer to nominal than that of Newcombe's method
10, also at 0 and 1 (see docs/notes/what-did-not-work.md).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.special import ndtri

from probes.statistics.intervals import Estimate

NEAR = 1e-9
TINY = 1e-30  # added to a variance to avoid division by zero
Shares = TypeVar("Shares", float, Float[np.ndarray, " tables"])


def tango(
    a: Shaped[np.ndarray, " samples"], b: Shaped[np.ndarray, " samples"], n: float | None = None, alpha: float = 0.05
) -> Estimate:
    """Return the interval of mean(a) - mean(b) for paired binary outcomes; no pairs give (nan, -1, 1).

    `n` is the number of independent groups, if smaller than the number of subjects.
    """
    a, b = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    if len(a) == 0:
        return Estimate(float("nan"), -1.0, 1.0)
    return tango_of_shares(float(np.mean(a & ~b)), float(np.mean(~a & b)), float(len(a) if n is None else n), alpha)


def tango_of_shares(only_a: float, only_b: float, n: float, alpha: float = 0.05) -> Estimate:
    """Return the same interval from the shares of pairs with only the first, and only the second, outcome true."""
    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    z = float(ndtri(1 - alpha / 2))

    def upper(a: float, b: float) -> float:
        """Return the difference above a - b at which the statistic, which decreases, equals -z."""
        if a - b >= 1 - 2 * NEAR or score(a, b, n, 1 - NEAR) + z >= 0:
            return 1.0
        return float(brentq(lambda d: score(a, b, n, d) + z, max(a - b, -1 + NEAR), 1 - NEAR, xtol=1e-10))

    return Estimate(only_a - only_b, -upper(only_b, only_a), upper(only_a, only_b))


def lies_within(
    only_a: Float[np.ndarray, " tables"],
    only_b: Float[np.ndarray, " tables"],
    n: float,
    where: tuple[float, float],
    alpha: float = 0.05,
) -> Bool[np.ndarray, " tables"]:
    """Return for each table whether its interval is inside an open range, without computing the interval."""
    z = float(ndtri(1 - alpha / 2))
    above = where[0] < -1 or score(only_a, only_b, n, where[0]) > z
    below = where[1] > 1 or score(only_a, only_b, n, where[1]) < -z
    return np.broadcast_to(above, np.shape(only_a)) & below


def score(only_a: Shares, only_b: Shares, n: float, difference: float) -> Shares:
    """Return the score statistic, standard normal if `difference` (between -1 and 1) is the true difference."""
    B = (2 - only_a + only_b) * difference - only_a - only_b
    C = -only_b * difference * (1 - difference)
    against = (abs(B * B - 8 * C) ** 0.5 - B) / 4  # the restricted rate of pairs with only the second true
    variance = 2 * against + difference * (1 - difference)
    return (only_a - only_b - difference) * (n / (abs(variance) + TINY)) ** 0.5
