"""Typed results of the uncertainty stage, as `stages/uncertainty.json` and results.json hold them."""

from __future__ import annotations

from pydantic import Field

from experiments.run.config import UncertaintyConfig
from extract.record import Record
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue


class MeaningsUsed(Record):
    """How answers were grouped by meaning: `exact`, or by an NLI model, which is named."""

    meaning: str
    model: str = ""
    revision: str | None = None
    weights: str = ""
    entailment: str = ""  # the model's label for entailment


class MeasureAuroc(Record):
    """AUROC of one measure for wrong or unknowable against right answers; `reason` where there is none."""

    auroc: float | None
    reason: str = ""
    auroc_ci: tuple[float, float] | None = None
    p: PValue | None = None
    groups_positive: float | None = None  # effective numbers
    groups_negative: float | None = None
    n_positive: int
    n_negative: int
    p_adjusted: PValue | None = None  # over the measures (Holm)


class Population(Record):
    """A set of questions, and the AUROC of every measure on it."""

    what: str
    wrong_or_unknowable: int
    right: int
    measures: dict[str, MeasureAuroc]


class ConfidenceBin(Record):
    """The share of right answers in one range of confidence."""

    start: float = Field(alias="from")
    end: float = Field(alias="to")
    confidence: float  # mean
    right: Estimate


class Reliability(Record):
    """Calibration of the confidence: bins, mean gap, Brier score."""

    bins: list[ConfidenceBin]
    gap: Estimate  # mean confidence less the share right
    brier: Estimate


class StratumAccuracy(Record):
    """The share of right answers in one stratum: hedged or not, high or low entropy."""

    hedged: bool
    high_entropy: bool
    right: Estimate


class HedgingByEntropy(Record):
    """Verbalised against statistical uncertainty: hedging by entropy."""

    threshold: float | None  # nats; above it entropy is high
    cells: list[StratumAccuracy]
    reason: str = ""


class KnowledgeLabels(Record):
    """Labels by what the model knows, and their agreement with the file's labels."""

    labelled: Estimate
    left_out: dict[str, int]
    file_to_model: dict[str, dict[str, int]]
    agreement_with_file: Estimate
    with_known_answer: Estimate
    by_samples_alone: Estimate


class UncertaintyMeasures(Record):
    """What is measured on completions and samples."""

    left_out: dict[str, int] = {}  # refused, unjudged
    populations: dict[str, Population] = {}
    reliability: dict[str, Reliability] = {}
    verbalised_and_statistical: HedgingByEntropy | None = None


class UncertaintyResult(UncertaintyMeasures):
    """Result of `refusal uncertainty`; only `settings`, `questions` and `reason` are set where there is no question."""

    settings: UncertaintyConfig
    questions: int
    applicable: bool
    reason: str
    remarks: list[str] = []
    meanings: MeaningsUsed | None = None
    knowledge: KnowledgeLabels | None = None
