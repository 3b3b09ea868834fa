"""Estimates: a number with its interval, its n and its effective number of groups, as results store it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from extract.record import Record
from probes.statistics.intervals import Interval, effective_groups

Limits = tuple[float, float]  # of a 95 % interval


class Estimate(Record):
    """A number with its 95 % limits (unless a field's name says otherwise); null without data.

    `f"{estimate:.1%}"` gives `20.2% [12.6%, 29.7%]`, and `none judged` where the estimate is null.
    """

    estimate: float | None
    low: float | None
    high: float | None
    n: int | None = None
    n_groups: float | None = None  # effective number (Kish 1965)

    def __format__(self, spec: str) -> str:
        return "none judged" if self.estimate is None else format(self.interval, spec)

    @property
    def interval(self) -> Interval:
        """The same as an `Interval` to compute with; NaN where null."""
        return Interval(*(float("nan") if v is None else v for v in (self.estimate, self.low, self.high)))


def estimate_of(interval: Interval, n: int | None = None, groups: Shaped[np.ndarray, " row"] | None = None) -> Estimate:
    """Return an interval as an `Estimate`.

    Args:
        n: number of prompts, written if given.
        groups: (n,) group of each row; their effective number is written if given.
    """
    counts: dict[str, float] = {} if n is None else {"n": n}
    if groups is not None:
        counts["n_groups"] = round(effective_groups(groups), 2)
    return Estimate.model_validate(interval.to_dict() | counts)
