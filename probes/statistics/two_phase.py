"""Two-phase samples: shares of prompts of which every stratum is measured whole or in a draw (Neyman 1938).

The strata are known for all prompts, and the draw is of groups: one prompt of each before the second of any. A measured
prompt stands for the prompts of its group, and the drawn groups for those of their stratum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from probes.statistics.intervals import (
    Estimate,
    clopper_pearson,
    combination,
    effective_groups,
    effective_number,
    tango_of_shares,
)

Hits = Bool[np.ndarray, " prompts"]


def draw(groups: Shaped[np.ndarray, " prompts"], most: int, rng: np.random.Generator) -> Int[np.ndarray, " drawn"]:
    """Draw at most so many prompts, one of each group before the second of any; return their places, ascending."""
    _, code = np.unique(groups, return_inverse=True)
    shuffled = rng.permutation(len(code))
    by_group = shuffled[np.argsort(code[shuffled], kind="stable")]
    sizes = np.bincount(code)
    turn = np.arange(len(code)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = rng.permutation(len(sizes))[code[by_group]]
    return np.sort(by_group[np.lexsort((place, turn))][:most])


@dataclass(frozen=True)
class TwoPhaseSample:
    """Which of some prompts are measured; with all of them, estimates are those of a plain sample.

    An interval adds the errors of both phases in squares: of the prompts, if all were measured (at their effective
    number of groups), and of each stratum's draw, times the stratum's share and the root of the share not drawn.
    """

    measured: Bool[np.ndarray, " prompts"]
    strata: Shaped[np.ndarray, " prompts"]
    groups: Shaped[np.ndarray, " prompts"]

    @cached_property
    def weight(self) -> Float[np.ndarray, " prompts"]:
        """The number of prompts that each measured one stands for; NaN where a stratum has none that is measured."""
        weight = np.zeros(len(self.measured))
        for inside in self._inside:
            rows = np.flatnonzero(inside & self.measured)
            among, size = np.unique(self.groups[inside], return_counts=True)
            place, n = np.searchsorted(among, self.groups[rows]), np.bincount
            drawn = n(place, minlength=len(among))
            of_groups = size[drawn > 0].sum()
            weight[rows] = size[place] / drawn[place] * inside.sum() / max(of_groups, 1)
            if not len(rows):
                weight[inside] = np.nan
        return weight

    @property
    def n_groups(self) -> float:
        """The effective number of groups that are measured."""
        return self._effective(np.ones(len(self.measured), dtype=bool))

    def rate(self, hit: Hits, alpha: float = 0.05) -> Estimate:
        """Return the share of all prompts that hit; what is not measured may have any value."""
        return self._estimate(lambda w, n: clopper_pearson(float(w @ hit) / w.sum() * n, n, alpha), 0.0)

    def difference(self, a: Hits, b: Hits, alpha: float = 0.05) -> Estimate:
        """Return the paired difference of two shares, with Tango's interval at each step."""

        def interval(w: Float[np.ndarray, " prompts"], n: float) -> Estimate:
            return tango_of_shares(float(w @ (a & ~b)) / w.sum(), float(w @ (~a & b)) / w.sum(), n, alpha)

        return self._estimate(interval, -1.0)

    @property
    def _inside(self) -> list[Hits]:
        return [self.strata == name for name in np.unique(self.strata)]

    def _effective(self, among: Hits) -> float:
        return effective_number(np.bincount(np.unique(self.groups, return_inverse=True)[1], self.weight * among))

    def _estimate(self, interval: Callable[[Float[np.ndarray, " prompts"], float], Estimate], least: float) -> Estimate:
        """Return an interval, given as a function of weights and the effective number of groups."""
        if not len(self.measured) or np.isnan(self.weight).any():
            return Estimate(float("nan"), least, 1.0, n=0, n_groups=0.0)
        whole = interval(self.weight, effective_groups(self.groups))
        scales, errors = [1.0], [whole]
        for inside in self._inside:
            if not_drawn := 1 - self.measured[inside].mean():
                own = self.weight * inside
                part = interval(own, self._effective(inside))
                errors.append(Estimate(0.0, part.low - part.estimate, part.high - part.estimate))
                scales.append(float(inside.mean() * np.sqrt(not_drawn)))
        both = whole if len(errors) == 1 else combination(scales, errors)
        limits = max(least, both.low), min(1.0, both.high)
        return Estimate(both.estimate, *limits, n=int(self.measured.sum()), n_groups=round(self.n_groups, 2))
