"""Typed results of the rank of a way of declining: stages/rank.json, and `dissociation.rank` of the results."""

from __future__ import annotations

from experiments.run.behaviour import Kind
from extract.record import Record
from probes.statistics.intervals import Estimate


class RankFit(Record):
    """One direction of the search: how it was fitted, and what still declines once it is ablated too."""

    fitted_by: str  # the write direction itself, difference in means (within strata), or spread
    layer: int
    fitted_on: int  # training decliners that still declined before it
    still_declining: int  # of these, after it
    stopped_on_validation: float  # share of the validation decliners


class RankEffect(Record):
    """What ablating the first k directions does to test decliners."""

    k: int
    stopped: Estimate  # share
    more: Estimate  # paired: the share that the best number of directions stops beyond these


class Growth(Record):
    """Effects of the first 0, 1, … directions on test decliners, and what the best number adds beyond each."""

    rank: int | None  # the least number beyond which no growth above the margin is shown
    settled: bool = False  # it is also shown that further directions add less than the margin
    best: int | None = None  # number of directions with the largest effect on validation prompts
    effects: tuple[RankEffect, ...] = ()


class RankEstimate(Growth):
    """How many directions one way of declining needs; `rank` is null where that cannot be tested."""

    reason: str  # why the search stopped, or why there is none
    margin: float
    alpha: float
    variant: str
    write_direction: Estimate | None = None  # share that the direction behind the verdict stops, alone
    fits: tuple[RankFit, ...] = ()


class Ranks(Record):
    """stages/rank.json: by way of declining."""

    normative: RankEstimate
    epistemic: RankEstimate

    def of(self, kind: Kind) -> RankEstimate:
        """Return the estimate of one way of declining."""
        return self.normative if kind == "normative" else self.epistemic
