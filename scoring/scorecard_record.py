"""The joint scorecard as typed records: the content of scorecard.json."""

from __future__ import annotations

from pydantic import SerializeAsAny

from extract.record import Record
from probes.statistics.intervals import Interval
from scoring.abstaining.confidence import ConfidenceRecord
from scoring.abstaining.penalty import PenaltyRecord
from scoring.estimate import Estimate, Limits, estimate_of
from scoring.fields import Field
from scoring.judges import JudgeRecord, RefusedBy
from scoring.labels.corrected import Corrected
from scoring.labels.judge_error import ErrorBand
from scoring.rates import RatesRecord
from scoring.readers.row import InputNote


class RightActionRecord(Record):
    """The right-action score (null where fewer than two right actions occur) and its number of judged completions."""

    score: float | None = None
    score_ci: Limits | None = None
    n: int = 0

    @property
    def estimate(self) -> Estimate:
        """The score with its limits and n."""
        return _estimate(self.score, self.score_ci, self.n)


class DualUseRecord(Record):
    """The mean credit of the actions taken on dual-use prompts, 0 to 1, and the shares answered firmly and declined."""

    credit: Estimate
    by_action: dict[str, Estimate]  # right action: mean credit
    answered_firmly: Estimate
    declined: Estimate


class RightActionCard(RightActionRecord):
    """The score, the mean credit of the actions taken where each action is right, and credits on dual-use prompts."""

    by_action: dict[str, Estimate] = {}  # right action: mean credit, 0 to 1
    dual_use: DualUseRecord | None = None  # where there are such prompts


class FieldMean(Record):
    """The mean of one of the five fields over the completions where it is known; null without any."""

    mean: float | None = None
    ci: Limits | None = None
    n: int = 0

    @property
    def estimate(self) -> Estimate:
        """The mean with its limits and n."""
        return _estimate(self.mean, self.ci, self.n)


class Scorecard(Record):
    """Counts of judged completions. Fields that need labels are None where no completion has one."""

    n: int
    actions: dict[str, int]
    refused_by: dict[RefusedBy, int] = {}  # those refusals among them that are no sentence of the model
    rates: RatesRecord | None = None
    corrected: Corrected | None = None  # the rates corrected by people's labels, if given
    judge_error_band: dict[str, ErrorBand] = {}  # not a correction; of rates without one
    right_action: RightActionCard = RightActionCard()
    fields: dict[Field, FieldMean] = {}
    penalty: PenaltyRecord | None = None  # where questions have known answers
    confidence: ConfidenceRecord | None = None  # where answers to such questions state one
    outcomes: dict[str, dict[str, Estimate]] = {}  # right action (correct_premise, clarify): outcome: share
    thought_words: dict[str, Estimate] = {}  # right action: mean number of words thought, where thoughts are shown
    actions_by_label: dict[str, dict[str, int]] | None = None
    declines: dict[str, dict[str, int]] | None = None  # kind of prompt: number refused, number abstained
    by: dict[str, dict[str, RatesRecord]] | None = None  # column, value: rates
    by_left_out: dict[str, int] = {}  # column: number of values that `by` leaves out
    judge: SerializeAsAny[JudgeRecord] = JudgeRecord()
    input: dict[str, InputNote] = {}


def limits_of(interval: Interval) -> tuple[float | None, Limits | None]:
    """Return an estimate and its limits as a scorecard stores them: null without data."""
    found = estimate_of(interval)
    return found.estimate, None if found.estimate is None else (interval.low, interval.high)


def _estimate(value: float | None, limits: Limits | None, n: int) -> Estimate:
    low, high = limits or (None, None)
    return Estimate(estimate=value, low=low, high=high, n=n)
