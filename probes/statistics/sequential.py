"""Sequential tests: looks at an experiment that goes on, and nulls that draw only as many permutations as they need.

**Looks.** Information is the share of the groups of the file that are judged, t, so that another hour is one more look.
By t the level alpha t^1.5 is spent (Lan & DeMets 1983, Biometrika 70:659; this family: Kim & DeMets 1987, Biometrika
74:149), and the interval at each look has the level that leaves so much. These intervals cover at all looks together,
so for whatever reason the experiment stops (Jennison & Turnbull 1989, J. R. Stat. Soc. B 51:305). The joint law of
looks is that of normal sums with independent increments; the intervals are the same as without looks. t^1.5 reaches
more verdicts early than O'Brien and Fleming's spending and as many at last (`benchmarks/simulations/looks.py`).

**Nulls.** The observed statistic and those of n permutations are exchangeable under no effect, and only the number of
draws that reach the observed one counts (exceedances, k of m draws). Without ties its rank is uniform, so the next draw
exceeds with probability (k + 1) / (m + 2) whatever the distribution (Polya's urn), and the law of the path of k is
known. Drawing stops
- for an effect, from draw ceil(2 / alpha) - 1 on, once so few exceed that the level spent by m draws stays within
  alpha max(1/2, m / n), each draw being a look;
- for none, at the h-th exceedance (Besag & Clifford 1991, Biometrika 78:301); with h no later stop is for an effect.

p is the probability of a stop at least as extreme: stops for an effect by draw (stage-wise ordering; Tsiatis, Rosner &
Mehta 1984, Biometrics 40:797), at one draw by exceedances, then those at the h-th exceedance, the latest first. Any
rule that reads only the path, with any fixed order of its stops, gives P(p <= a) <= a for every a, and equality where a
is one of the p-values (Fay, Kim & Hachey 2007, J. Comput. Graph. Stat. 16:946). So p may be judged at any level.

Ties count as exceedances, which makes p larger at most: with ties broken at random k is nowhere larger, and if one path
is nowhere above another, then where the other stops for an effect it has stopped for one, at the same draw with no more
exceedances or before; and where the other stops for none it has not yet stopped for none before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import ceil

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

ROUNDING = 1e-9  # of levels
SPENDING = 1.5  # power of the information by which the level of looks is spent
NULL_SPENDING = 0.5  # the same for nulls: a small level costs them draws, about 2 / level, and hardly power
PLACES = 801  # of the sum, between the limits of a look


@cache
def look_level(looks: tuple[float, ...], alpha: float = 0.05, power: float = SPENDING) -> float:
    """Return the level of two-sided intervals at the last of some looks, by their shares of all information.

    ValueError: the shares do not increase within (0, 1].
    """
    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    if not looks or any(later <= earlier for earlier, later in pairwise((0.0, *looks))) or looks[-1] > 1:
        raise ValueError(f"the shares of information at looks increase within (0, 1], got {looks}")
    if len(looks) == 1:
        return float(alpha * looks[0] ** power)
    places, chances, limit = np.zeros(1), np.ones(1), 0.0  # of the sums that no earlier look's limits exclude
    for before, now in pairwise((0.0, *looks)):
        spread, spends = (now - before) ** 0.5, alpha * (now**power - before**power)

        def excess(limit: float) -> float:
            beyond = ndtr((places - limit) / spread) + ndtr((-places - limit) / spread)  # noqa: B023
            return float(chances @ beyond) - spends  # noqa: B023

        limit = float(brentq(excess, 0.0, 10.0))
        inside = np.linspace(-limit, limit, PLACES)
        kernel = np.exp(-(((inside[:, None] - places) / spread) ** 2) / 2) / (spread * (2 * np.pi) ** 0.5)
        ends = np.where(np.abs(inside) == limit, 0.5, 1.0)
        places, chances = inside, kernel @ chances * ends * (inside[1] - inside[0])
    return float(2 * ndtr(-limit / looks[-1] ** 0.5))


@dataclass(frozen=True)
class DrawingRule:
    """When a test at level alpha with at most n draws stops. ValueError: so few draws reach no p-value of alpha."""

    n: int
    alpha: float

    def __post_init__(self) -> None:
        if self.alpha * (self.n + 1) < 1 - ROUNDING:
            raise ValueError(f"the smallest p-value of {self.n} draws is {1 / (self.n + 1):.3g}, above {self.alpha:g}")

    @classmethod
    def at_look(cls, looks: tuple[float, ...], n: int, alpha: float) -> DrawingRule:
        """Return the rule of a null at the last of some looks; more than n draws where its level needs them."""
        level = look_level(looks, alpha, NULL_SPENDING)
        return cls(max(n, ceil(1 / level - ROUNDING) - 1), level)

    def stops(self, exceeds: Bool[np.ndarray, " draws"]) -> int | None:
        """Return the number of draws after which the test stops; None if it goes on after these."""
        beyond = np.cumsum(exceeds[: self.n])
        stopping = (beyond <= self._limits[1 : len(beyond) + 1]) | (beyond >= self._enough)
        return int(np.argmax(stopping)) + 1 if stopping.any() else None

    def p(self, exceeds: Bool[np.ndarray, " draws"]) -> float:
        """Return the p-value of the draws up to the stop; NaN if the test goes on after these."""
        if (m := self.stops(exceeds)) is None:
            return float("nan")
        return self._p[m, int(exceeds[:m].sum())]

    def power(self, share: float) -> float:
        """Return how often p <= alpha, if each draw exceeds with this probability."""
        shown = {stop for stop, p in self._p.items() if p <= self.alpha}
        return sum(probability for m, k, probability in self._walk(share) if (abs(m), k) in shown)

    def mean_draws(self, share: float) -> float:
        """Return the mean number of draws, if each exceeds with this probability."""
        return sum(abs(m) * probability for m, _, probability in self._walk(share))

    @property
    def _enough(self) -> int:
        """The number of exceedances at which drawing stops for no effect."""
        return int(self._limits[-1]) + 1

    @cached_property
    def _limits(self) -> np.ndarray:
        """The most exceedances with which drawing stops for an effect, by number of draws, (n + 1,); -1: none."""
        limits, spent, first = np.full(self.n + 1, -1), 0.0, ceil(2 / self.alpha - ROUNDING) - 1
        reached = _start(int(self.alpha * (self.n + 1) + ROUNDING))
        for m in range(1, self.n + 1):
            reached = _next(reached, (np.arange(len(reached)) + 1) / (m + 1))
            if m < min(first, self.n):
                continue
            within = spent + np.cumsum(reached) <= self.alpha * max(0.5, m / self.n) + ROUNDING
            stopped = int(within.sum())
            limits[m], spent = stopped - 1, spent + float(reached[:stopped].sum())
            reached[:stopped] = 0
        return limits

    def _walk(self, share: float | None = None) -> list[tuple[int, int, float]]:
        """List the stops with their probabilities: (draws, exceedances, probability), draws negative if for no effect.

        Args:
            share: the probability that a draw exceeds; None: that of exchangeable draws.
        """
        stops, enough = list[tuple[int, int, float]](), self._enough
        reached = _start(enough)
        for m in range(1, self.n + 1):
            step = np.full(enough, share) if share is not None else (np.arange(enough) + 1) / (m + 1)
            lost = float(reached[-1] * step[-1])
            reached = _next(reached, step)
            stops += [(m, k, float(reached[k])) for k in range(self._limits[m] + 1) if reached[k] > 0]
            stops += [(-m, enough, lost)] if lost > 0 else []
            reached[: self._limits[m] + 1] = 0
        return stops

    @cached_property
    def _p(self) -> dict[tuple[int, int], float]:
        """The p-value of each stop, (draws, exceedances)."""
        stops = sorted(self._walk(), key=lambda stop: (stop[0] < 0, stop[0], stop[1]))
        total = np.minimum(np.cumsum([probability for *_, probability in stops]), 1)
        return {(abs(m), k): round(float(p), 12) for (m, k, _), p in zip(stops, total, strict=True)}


def _start(states: int) -> np.ndarray:
    """Return the probability of each number of exceedances before the first draw."""
    return np.eye(1, states)[0]


def _next(reached: Float[np.ndarray, " states"], step: Float[np.ndarray, " states"]) -> Float[np.ndarray, " states"]:
    """Return the probabilities after one more draw; what exceeds the last state is lost."""
    up = reached * step
    return reached - up + np.concatenate([[0.0], up[:-1]])
