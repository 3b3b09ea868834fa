"""Typed results on the context of requests: measurements and verdicts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from extract.record import Record
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue

Moved = Literal["both", "action", "projection", "neither"]


class ActionsAfterRemoval(Record):
    """Measured: the actions on requests after a factor was removed; one entry a request."""

    ids: tuple[str, ...]
    actions: tuple[str | None, ...]  # None where it could not be judged


class TextCounts(Record):
    """Counts of last turns that follow earlier turns."""

    distinct: int
    both: int  # of them, those in both harmful and benign requests


class LastTurnAuroc(Record):
    """AUROC of harmful against benign requests by the log-odds of refusing."""

    whole: Estimate  # the whole conversation
    alone: Estimate  # the last turn


class LastTurnScores(Record):
    """Measured: AUROC of harmful against benign by the log-odds of refusing, whole and by the last turn alone."""

    applicable: Literal[True]
    n: int
    texts: TextCounts
    auroc: LastTurnAuroc | None = None
    reason: str | None = None  # where there is no AUROC


class LastTurnAlone(Record):
    """Verdict: whether the last turn alone separates harmful from benign; None where it is not known."""

    sufficient: bool | None
    reason: str
    applicable: bool
    n: int | None = None
    texts: TextCounts | None = None
    auroc: LastTurnAuroc | None = None


class DirectionShift(Record):
    """Difference of the projection on one direction between requests with a value and without it."""

    difference: Estimate  # in units of the distance between the class means
    p: PValue
    p_adjusted: PValue
    moves: bool
    p_differs_from_action: PValue
    p_differs_from_action_adjusted: PValue


class ValueEffect(Record):
    """Refusal rates of the requests of one label with one value of a factor, and without it."""

    value: str
    label: str
    compared_with: str
    with_value: Estimate = Field(alias="with")
    without: Estimate
    difference: Estimate
    p: PValue
    p_adjusted: PValue
    moves: bool
    projection: dict[str, DirectionShift] = {}  # by direction
    moved: Moved | None = None


class ChangedDecisions(Record):
    """Decisions on the requests of one label, whole and without the factor."""

    n: int
    n_groups: int
    refused_whole: Estimate
    refused_without: Estimate
    changed: Estimate


class RemovalResult(Record):
    """Verdict: whether removing a factor moves refusing; None where it is not known."""

    moves: bool | None
    benign: ChangedDecisions | None = None
    harmful: ChangedDecisions | None = None

    def by_label(self) -> dict[str, ChangedDecisions]:
        """Return the labels that were asked again."""
        both = {"benign": self.benign, "harmful": self.harmful}
        return {label: change for label, change in both.items() if change is not None}


class FactorResult(Record):
    """Verdict: whether a factor moves refusing; None where it is not known."""

    applicable: bool
    moves: bool | None
    reason: str
    removable: bool = False
    values: tuple[ValueEffect, ...] = ()
    not_tested: dict[str, int] = {}  # values in too few groups, with the number of groups
    n_not_tested: int = 0
    removed: RemovalResult | None = None


class ContextResults(Record):
    """All verdicts on the context of requests."""

    factors: dict[str, FactorResult] = {}
    last_turn_alone: LastTurnAlone | None = None
