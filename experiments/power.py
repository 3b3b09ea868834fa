"""How many more independent prompts, or permuted-label directions, an open question of a verdict needs.

The question is whether an interval lies in a range. Its answer is called settled in an experiment of n groups if the
interval lies there, with the interval function that the verdict itself uses; `needed` is the least n at which that
happens in `POWER` of experiments, if the rates and the discordance measured so far are the true ones. Experiments are
stood for by the quantiles of their estimate: those of the binomial, and for paired differences of the normal, the
table of the pairs at each being its mean given that difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
from scipy.stats import binom, norm

from experiments.verdict_rules import Range, lies_inside
from probes.intervals import Interval, clopper_pearson, paired_difference_of_counts

POWER = 0.8
MOST = 100_000  # no one has more than this
QUANTILES = (np.arange(100) + 0.5) / 100
Unit = Literal["independent decliners", "permuted-label directions"]


@dataclass(frozen=True)
class Need:
    """What one open cell of a verdict lacks."""

    cell: str
    question: str
    unit: Unit
    now: float
    needed: int | None  # None where no number would do, or more than MOST
    more: int | None
    obstacle: str = ""  # why no number is given

    def __str__(self) -> str:
        if self.needed is None:
            return self.obstacle
        return f"about {self.needed} {self.unit} would settle it (now {self.now:.0f}) with a power of {POWER:.0%}"


def contrast_need(cell: str, question: str, a: np.ndarray, b: np.ndarray, n: float, where: Range, alpha: float) -> Need:
    """Say how many groups would show mean(a) - mean(b) of paired outcomes to lie in a range; n groups were seen."""
    a, b = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    shares = np.array([np.mean(x) if len(x) else np.nan for x in (a & b, a & ~b, ~a & b, ~a & ~b)])
    return _need(cell, question, shares[1] - shares[2], n, where, lambda n: contrast_power(shares, n, where, alpha))


def rate_need(cell: str, question: str, rate: float, n: float, where: Range, alpha: float) -> Need:
    """Say how many groups would show a rate to lie in a range."""
    return _need(cell, question, rate, n, where, lambda n: rate_power(rate, n, where, alpha))


def null_need(cell: str, question: str, p: float | None, n: int | None, alpha: float) -> Need:
    """Say how many permuted-label directions would bring p = (1 + beyond) / (1 + n) down to alpha."""
    unit: Unit = "permuted-label directions"
    if p is None or n is None:
        return Need(cell, question, unit, n or 0, None, None, "it was not compared with them")
    share = max(0.0, p * (n + 1) - 1) / n
    if share >= alpha:
        return Need(cell, question, unit, n, None, None, f"no number of {unit} would settle it")
    return _found(cell, question, unit, n, fewest(lambda n: null_power(share, n, alpha), n))


def contrast_power(shares: np.ndarray, n: int, where: Range, alpha: float) -> float:
    """Return how often n groups show a paired difference to lie in a range.

    Args:
        shares: of the pairs, (both, only the first, only the second, neither).
    """
    sign = np.array([0, 1, -1, 0])
    difference = float(shares @ sign)
    spread = np.sqrt(max(0.0, shares[1] + shares[2] - difference**2) / n)
    lean = shares * (sign - difference) / (n * spread) if spread > 0 else np.zeros(4)  # of the table on its difference
    tables = np.maximum(0.0, shares + norm.ppf(QUANTILES)[:, None] * lean)
    return _share_inside([paired_difference_of_counts(*table, n, alpha) for table in tables], where)


def rate_power(rate: float, n: int, where: Range, alpha: float) -> float:
    """Return how often n groups show a rate to lie in a range."""
    return _share_inside([clopper_pearson(hits, n, alpha) for hits in binom.ppf(QUANTILES, n, rate)], where)


def null_power(share: float, n: int, alpha: float) -> float:
    """Return how often n null directions, this share of them beyond the effect, give a p of at most alpha."""
    return float(binom.cdf(np.floor(alpha * (n + 1) + 1e-9) - 1, n, share))


def fewest(power: Callable[[int], float], now: float) -> int | None:
    """Return the least number above what there is at which power suffices, or None if MOST is not enough."""
    low, high = int(now), int(now) + 1
    while power(high) < POWER:
        low, high = high, 2 * high
        if low >= MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high if high <= MOST else None


def _need(cell: str, question: str, estimate: float, n: float, where: Range, power: Callable[[int], float]) -> Need:
    unit: Unit = "independent decliners"
    if np.isnan(estimate):
        return Need(cell, question, unit, n, None, None, "nothing was measured")
    if not lies_inside(estimate, where):
        on = any(abs(estimate - edge) <= 1e-9 for edge in where)
        why = "no number would settle it: the estimate lies " + ("on the margin" if on else "on the other side")
        return Need(cell, question, unit, n, None, None, why)
    return _found(cell, question, unit, n, fewest(power, n))


def _found(cell: str, question: str, unit: Unit, now: float, needed: int | None) -> Need:
    if needed is None:
        return Need(cell, question, unit, now, None, None, f"more than {MOST} {unit} would be needed to settle it")
    return Need(cell, question, unit, now, needed, ceil(needed - now))


def _share_inside(intervals: list[Interval], where: Range) -> float:
    return float(np.mean([where[0] < i.low and i.high < where[1] for i in intervals]))
