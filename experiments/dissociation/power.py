"""Sample size for a power of 80 %: how many independent prompts, or null directions, settle an open question.

An experiment with n groups settles whether an interval lies in a range if the interval, computed by the verdict's own
function, lies there. The number needed is the least n at which this happens in `POWER` of experiments, if the rates and
the discordance measured so far are the true ones. Experiments are represented by the quantiles of their estimate: of
the binomial, and for paired differences of the normal, each with the mean table of pairs given that difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from experiments.run.config import DissociateConfig
from probes.statistics.intervals import Estimate, clopper_pearson, lies_within
from probes.statistics.sequential import DrawingRule

Range = tuple[float, float]
ROUNDING = 1e-9  # an estimate this near to a margin counts as on the margin
POWER = 0.8
MOST = 100_000  # larger sample sizes are not reported
MANY = 1_000  # null directions
OWN, OTHER = 0.6, 0.1  # effects of ablating on the own and the other behaviour, for the power of fewer prompts
LEAST_POWER = 0.5  # of a question that is begun
QUANTILES = (np.arange(100) + 0.5) / 100
Unit = Literal["independent decliners", "permuted-label directions"]
DECLINERS: Unit = "independent decliners"
DIRECTIONS: Unit = "permuted-label directions"
Needed = int | str  # a number, or why there is none


@dataclass(frozen=True)
class SampleSize:
    """How many groups, or null directions, would settle one open question of a verdict."""

    quantity: Annotated[str, Field(alias="cell")]  # the name of a contrast, an effect or a null; "cell" in the JSON
    question: str
    unit: Unit
    now: float
    needed: int | None  # None if no number is enough, or more than MOST would be needed
    more: int | None
    obstacle: str = ""  # the reason if there is no number

    @classmethod
    def of(cls, quantity: str, question: str, unit: Unit, now: float, needed: Needed) -> Self:
        """Return the sample size from the number needed, or the reason why there is none."""
        if isinstance(needed, str):
            return cls(quantity, question, unit, now, None, None, needed)
        return cls(quantity, question, unit, now, needed, ceil(needed - now))

    def __str__(self) -> str:
        if self.needed is None:
            return self.obstacle
        return f"about {self.needed} {self.unit} would settle it (now {self.now:.0f}) with a power of {POWER:.0%}"


def needed_for_contrast(only_a: float, only_b: float, n: float, where: Range, alpha: float) -> Needed:
    """Return how many groups would show that a paired difference lies in a range; n were seen. See `contrast_power`."""
    return _settling(only_a - only_b, n, where, lambda n: contrast_power(only_a, only_b, n, where, alpha))


def needed_for_rate(rate: float, n: float, where: Range, alpha: float) -> Needed:
    """Return how many groups would show that a rate lies in a range; n groups were seen."""
    from scipy.stats import binom  # it takes long to import, and reading results does not need it

    def power(n: int) -> float:
        return float(
            np.mean([lies_in(clopper_pearson(hits, n, alpha), where) for hits in binom.ppf(QUANTILES, n, rate)])
        )

    return _settling(rate, n, where, power)


def needed_for_null(exceeding: int, n: int | None, alpha: float) -> Needed:
    """Return how many permuted-label directions would bring p down to alpha, by the share that exceed the effect.

    Drawing stops at a fixed number that exceed it, so that the last one drawn is no evidence of their share (Haldane
    1945); a few draws leave open whether that is above alpha.
    """
    if n is None:
        return "it was not compared with them"
    share = max(0, exceeding - 1) / max(1, n - 1)
    if share < alpha:
        return _smallest(DIRECTIONS, n, lambda m: null_power(share, m, alpha))
    if clopper_pearson(exceeding, n).low <= alpha:
        return f"{exceeding} of {n} exceed it, too few to tell whether more {DIRECTIONS} would settle it"
    return f"no number of {DIRECTIONS} would settle it"


def lies_in(interval: Estimate, where: Range) -> bool:
    """Return whether an interval lies in an open range."""
    return where[0] < interval.low and interval.high < where[1]


def contrast_power(only_a: float, only_b: float, n: int, where: Range, alpha: float) -> float:
    """Return how often n groups show that a paired difference lies in a range.

    Args:
        only_a, only_b: the shares of pairs in which only the first outcome, and only the second, is true.
    """
    difference = only_a - only_b
    spread = np.sqrt(max(ROUNDING, only_a + only_b - difference**2) / n)
    away = ndtri(QUANTILES) / spread / n  # scaled so that each share's mean moves by its covariance
    more_a = np.clip(only_a + away * only_a * (1 - difference), 0, 1)
    more_b = np.clip(only_b - away * only_b * (1 + difference), 0, 1)
    return float(lies_within(more_a, more_b, n, where, alpha).mean())


def own_effect_power(settings: DissociateConfig, n: float, level: float | None = None) -> float:
    """Return how often n independent decliners show that an own effect exceeds the other one's by the margin.

    `level`: of a look at a part of the prompts; None: the whole level.
    """
    only_own, only_other = OWN * (1 - OTHER), OTHER * (1 - OWN)
    level = settings.alpha if level is None else level
    return contrast_power(only_own, only_other, int(n), (settings.margin, inf), level) if n >= 1 else 0.0


def null_power(share: float, n: int, alpha: float) -> float:
    """Return how often at most n null directions give p <= alpha if `share` of them exceed the effect.

    From `MANY` on as if all n were always drawn, which stopping early changes by a few points at most.
    """
    from scipy.stats import binom

    if n < MANY:
        return DrawingRule(n, alpha).power(share) if alpha * (n + 1) >= 1 else 0.0
    return float(binom.cdf(np.floor(alpha * (n + 1) + 1e-9) - 1, n, share))


def _settling(estimate: float, n: float, where: Range, power: Callable[[int], float]) -> Needed:
    if np.isnan(estimate):
        return "nothing was measured"
    if not where[0] + ROUNDING < estimate < where[1] - ROUNDING:
        on = any(abs(estimate - edge) <= ROUNDING for edge in where)
        return "no number would settle it: the estimate lies " + ("on the margin" if on else "on the other side")
    return _smallest(DECLINERS, n, power)


def _smallest(unit: Unit, now: float, power: Callable[[int], float]) -> Needed:
    """Return the least number above `now` at which the power reaches POWER, if it is at most MOST."""
    low, high = int(now), int(now) + 1
    while low < MOST and power(high) < POWER:
        low, high = high, 2 * high
    while high - low > 1 and low < MOST:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return f"more than {MOST} {unit} would be needed to settle it" if high > MOST else high
