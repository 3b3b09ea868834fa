"""Typed results on the context of requests."""

from __future__ import annotations

from math import nan
from typing import Literal

from pydantic import Field

from extract.record import Record
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue

Moved = Literal["both", "action", "projection", "neither"]


class LastTurnAlone(Record):
    """Whether the last turn alone separates harmful from benign; None where it is not known, or not yet judged."""

    sufficient: bool | None = None
    reason: str = ""
    applicable: bool
    n: int | None = None
    texts: dict[Literal["distinct", "both"], int] | None = None  # last turns; those in harmful and benign requests
    auroc: dict[Literal["whole", "alone"], Estimate] | None = None  # by the log-odds of refusing


class DirectionShift(Record):
    """Difference of the projection on one direction between requests with a value and without it."""

    difference: Estimate  # in units of the distance between the class means
    p: PValue
    p_adjusted: PValue  # Holm over every shift
    moves: bool
    p_differs_from_action: PValue  # null hypothesis: the action changes by as much as the projection shifts
    p_differs_from_action_adjusted: PValue


class ValueEffect(Record):
    """Refusal rates of the requests of one label with a value of a factor and without it, within shared categories."""

    factor: str = Field("", exclude=True)  # the key of `FactorResult` in the file
    value: str
    label: str
    compared_with: str  # "none": requests without any value of this factor; "others": all without this one
    with_value: Estimate = Field(alias="with")  # with its prompts and their groups
    without: Estimate
    difference: Estimate
    p: PValue = nan
    p_adjusted: PValue = nan  # Holm over all values of all factors
    moves: bool = False
    projection: dict[str, DirectionShift] = {}  # by direction
    moved: Moved | None = None


class DecisionChange(Record):
    """Decisions (refused or not) on one label's requests before and after a change; rates are over groups."""

    before: Estimate
    after: Estimate
    changed: Estimate
    n: int
    n_groups: int


class RemovalResult(Record):
    """Verdict: whether removing a factor moves refusing; None where it is not known."""

    moves: bool | None
    benign: DecisionChange | None = None
    harmful: DecisionChange | None = None

    def by_label(self) -> dict[str, DecisionChange]:
        """Return the labels that were asked again."""
        both = {"benign": self.benign, "harmful": self.harmful}
        return {label: change for label, change in both.items() if change is not None}


class FactorResult(Record):
    """Verdict: whether a factor moves refusing; None where it is not known."""

    applicable: bool
    moves: bool | None
    reason: str
    values: tuple[ValueEffect, ...] = ()
    not_tested: dict[str, int] = {}  # values in too few groups, with the number of groups
    removed: RemovalResult | None = None


class ContextResults(Record):
    """All verdicts on the context of requests."""

    factors: dict[str, FactorResult] = {}
    last_turn_alone: LastTurnAlone | None = None
