"""The comparison of runs as typed records: comparison.json, flips.jsonl and `refusal compare --json`."""

from __future__ import annotations

from typing import Literal

from extract.record import Record
from probes.statistics.intervals import Estimate
from scoring.rates import JointRates

Move = Literal["better", "worse", "along_the_trade_off", "at_odds", "none_shown"]


class ScoredRun(Record):
    """A run: the file of its judged completions, its numbers of repeated and conflicting ids, and its joint rates."""

    run: str
    file: str
    repeated: int = 0
    conflicting: int = 0
    n: int
    rates: JointRates
    right_action: Estimate


class MatchCounts(Record):
    """Numbers of completions that two runs share, lack or label differently; `prompts`: same prompt and label."""

    prompts: int
    only_in_first: int
    only_in_second: int
    label_differs: int
    right_action_differs: int
    text_differs: int
    unjudged_in_first: int
    unjudged_in_second: int


class RateChange(Record):
    """The change of one rate on the prompts that both runs judged; the difference is second minus first."""

    first: float | None
    second: float | None
    difference: Estimate
    stopped: int  # hits of the first run only
    began: int  # hits of the second run only
    mcnemar_p: float
    mcnemar_p_holm: float
    shown: bool  # significant at 5 %, corrected over the rates


class Transition(Record):
    """The number of completions of one label that changed from one action to another."""

    label: str | None
    first: str
    second: str
    n: int


class Flip(Record):
    """A prompt whose action changed; an action is null where the completion was not judged."""

    id: str
    sample: str
    label: str | None
    text: str | None
    first: str | None
    second: str | None
    first_evidence: str
    second_evidence: str


class ComparedRun(ScoredRun):
    """A later run, compared with the first."""

    matched: MatchCounts
    changes: dict[str, RateChange]
    right_action_change: Estimate
    move: Move
    transitions: tuple[Transition, ...] = ()
    flips: tuple[Flip, ...] = ()  # written to flips.jsonl, not to comparison.json


class FailedCondition(Record):
    """A condition of `--fail-if` that a run meets, or that cannot be evaluated (`known` is false)."""

    run: str
    condition: str
    known: bool
    value: float | None


class Comparison(Record):
    """The first run, and every later run compared with it."""

    first: ScoredRun
    comparisons: tuple[ComparedRun, ...]
    failed: tuple[FailedCondition, ...] = ()
