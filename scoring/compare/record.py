"""The comparison of runs as a value: what comparison.json, flips.jsonl and `refusal compare --json` hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from extract.record import Record
from scoring.estimate import Estimate, Limits
from scoring.rates import RatesRecord, with_current_names
from scoring.scorecard_record import RightActionRecord

Move = Literal["better", "worse", "along_the_trade_off", "at_odds", "none_shown"]


class ScoredRun(Record):
    """A run: where its judged completions were read, how often an id came again, and its joint rates."""

    run: str
    file: str
    repeated: int = 0
    conflicting: int = 0
    n: int
    rates: RatesRecord
    right_action: RightActionRecord


class MatchCounts(Record):
    """How many completions two runs share, lack, or name differently; `prompts`: of the same prompt and label."""

    prompts: int
    only_in_first: int
    only_in_second: int
    label_differs: int
    right_action_differs: int
    text_differs: int
    unjudged_in_first: int
    unjudged_in_second: int


class RateChange(Record):
    """How one rate changed on the prompts that both runs judged; the difference is second minus first."""

    first: float | None
    second: float | None
    difference: float | None
    difference_ci: Limits
    n: int
    stopped: int  # hits of the first alone
    began: int  # hits of the second alone
    mcnemar_p: float
    mcnemar_p_holm: float
    shown: bool  # chance is an unlikely explanation (5 %, corrected over the rates)

    @property
    def estimate(self) -> Estimate:
        """The difference with its limits and n."""
        low, high = self.difference_ci
        return Estimate(estimate=self.difference, low=low, high=high, n=self.n)


class Transition(Record):
    """How many completions of one label changed from one action into another."""

    label: str | None
    first: str
    second: str
    n: int


class Flip(Record):
    """A completion whose action changed; null where it was not judged."""

    id: str
    sample: str
    label: str | None
    text: str | None
    first: str | None
    second: str | None
    first_evidence: str
    second_evidence: str


class ComparedRun(ScoredRun):
    """A later run against the first."""

    matched: MatchCounts
    changes: Annotated[dict[str, RateChange], BeforeValidator(with_current_names)]
    right_action_change: float | None
    right_action_change_ci: Limits | None
    move: Move
    transitions: tuple[Transition, ...] = ()
    flips: tuple[Flip, ...] = ()  # comparison.json leaves them to flips.jsonl

    @property
    def score_change(self) -> Estimate:
        """The change of the right-action score with its limits."""
        low, high = self.right_action_change_ci or (None, None)
        return Estimate(estimate=self.right_action_change, low=low, high=high)


class FailedCondition(Record):
    """A condition of `--fail-if` that holds of a run, or that cannot be evaluated (`known` is false)."""

    run: str
    condition: str
    known: bool
    value: float | None


class Comparison(Record):
    """Every later run against the first."""

    first: ScoredRun
    comparisons: tuple[ComparedRun, ...]
    failed: tuple[FailedCondition, ...] = ()
