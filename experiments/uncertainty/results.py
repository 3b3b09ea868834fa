"""Typed results of the uncertainty stage, as `stages/uncertainty.json` and results.json hold them."""

from __future__ import annotations

from pydantic import Field

from extract.record import Record
from scoring.estimate import Estimate


class SamplingSettings(Record):
    """How answers were sampled, and how their meanings were compared."""

    samples: int
    temperature: float
    top_p: float
    meaning: str


class MeaningsUsed(Record):
    """How answers were grouped by meaning: `exact`, or by an NLI model, which is named."""

    meaning: str
    model: str = ""
    revision: str | None = None
    weights: str = ""
    entailment: str = ""  # the model's label for it


class LeftOut(Record):
    """Questions that say nothing of what the model knows."""

    refused: int
    unjudged: int


class MeasureAuroc(Record):
    """How well one measure separates wrong or unknowable answers from right ones; `reason` where it cannot be said."""

    auroc: float | None
    reason: str = ""
    auroc_ci: tuple[float, float] | None = None
    p: float | None = None
    groups_positive: float | None = None  # effective numbers
    groups_negative: float | None = None
    n_positive: int
    n_negative: int
    unmeasured: int
    p_adjusted: float | None = None  # for the measures tried (Holm)


class Population(Record):
    """Some of the questions, and the AUROC of every measure among them."""

    what: str
    wrong_or_unknowable: int
    right: int
    measures: dict[str, MeasureAuroc]


class ConfidenceBin(Record):
    """Answers of one range of confidence, and the share of them that is right."""

    start: float = Field(alias="from")
    end: float = Field(alias="to")
    confidence: float  # mean
    right: Estimate


class Reliability(Record):
    """Whether answers are right as often as the model is confident."""

    bins: list[ConfidenceBin]
    gap: Estimate  # mean confidence less the share right
    brier: Estimate


class StratumAccuracy(Record):
    """The share right among answers that are hedged or not, of high or low entropy."""

    hedged: bool
    high_entropy: bool
    right: Estimate


class HedgingGap(Estimate):
    """How much more is hedged at high entropy, with its permutation p."""

    p: float


class HedgingByEntropy(Record):
    """What is said aloud against what the samples do."""

    threshold: float | None  # nats; above it entropy is high
    cells: list[StratumAccuracy]
    reason: str = ""
    hedged_more_at_high_entropy: HedgingGap | None = None


class KnowledgeLabels(Record):
    """Labels by what the model knows, and how they agree with the file's."""

    labelled: Estimate
    left_out: dict[str, int]
    file_to_model: dict[str, dict[str, int]]
    agreement_with_file: Estimate
    with_known_answer: Estimate
    by_samples_alone: Estimate


class UncertaintyResult(Record):
    """Everything of `refusal uncertainty`; only `settings`, `questions` and `reason` where there is no question."""

    settings: SamplingSettings
    questions: int
    applicable: bool
    reason: str
    remarks: list[str] = []
    meanings: MeaningsUsed | None = None
    left_out: LeftOut | None = None
    populations: dict[str, Population] = {}
    reliability: dict[str, Reliability] = {}
    verbalised_and_statistical: HedgingByEntropy | None = None
    knowledge: KnowledgeLabels | None = None
