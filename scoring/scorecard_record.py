"""The joint scorecard as typed records: the content of scorecard.json."""

from __future__ import annotations

from dataclasses import replace

from pydantic import SerializeAsAny

from extract.record import Record
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from scoring.abstaining.confidence import ConfidenceRecord
from scoring.abstaining.penalty import PenaltyRecord
from scoring.fields import Field
from scoring.judges import JudgeRecord, RefusedBy
from scoring.labels.corrected import Corrected
from scoring.labels.judge_error import ErrorBand
from scoring.rates import JointRates
from scoring.readers.row import InputNote


class DualUseRecord(Record):
    """The mean credit of the actions taken on dual-use prompts, 0 to 1, and the shares answered firmly and declined."""

    credit: Estimate
    by_action: dict[str, Estimate]  # right action: mean credit
    answered_firmly: Estimate
    declined: Estimate


class RightActionCard(Record):
    """The right-action score (NaN with fewer than two right actions) and the mean credits of the actions taken."""

    score: Estimate = replace(NO_ESTIMATE, n=0)
    by_action: dict[str, Estimate] = {}  # right action: mean credit, 0 to 1
    dual_use: DualUseRecord | None = None  # where there are such prompts


class Scorecard(Record):
    """Counts of judged completions. Fields that need labels are None where no completion has one."""

    n: int
    actions: dict[str, int]
    refused_by: dict[RefusedBy, int] = {}  # those refusals among them that are no sentence of the model
    rates: JointRates | None = None
    corrected: Corrected | None = None  # the rates corrected by people's labels, if given
    judge_error_band: dict[str, ErrorBand] = {}  # not a correction; of rates without one
    right_action: RightActionCard = RightActionCard()
    fields: dict[Field, Estimate] = {}  # mean over the completions where it is known
    penalty: PenaltyRecord | None = None  # where questions have known answers
    confidence: ConfidenceRecord | None = None  # where answers to such questions state one
    outcomes: dict[str, dict[str, Estimate]] = {}  # right action (correct_premise, clarify): outcome: share
    thought_words: dict[str, Estimate] = {}  # right action: mean number of words thought, where thoughts are shown
    actions_by_label: dict[str, dict[str, int]] | None = None
    declines: dict[str, dict[str, int]] | None = None  # kind of prompt: number refused, number abstained
    by: dict[str, dict[str, JointRates]] | None = None  # column, value: rates
    by_left_out: dict[str, int] = {}  # column: number of values that `by` leaves out
    judge: SerializeAsAny[JudgeRecord] = JudgeRecord()
    input: dict[str, InputNote] = {}
