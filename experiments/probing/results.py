"""Typed results of probing: the probe grid, chosen loci, write directions, onsets."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from experiments.probing.geometry_results import Geometry
from experiments.run.behaviour import Kind
from extract.record import Record
from probes.direction import Locus
from probes.grid.nulls import NullAUROC
from probes.statistics.metrics import enough
from probes.statistics.permutation import PValue

DPrime = Annotated[  # infinite (null in JSON): both classes are without spread, such as one prompt of each
    float,
    BeforeValidator(lambda d: float("inf") if d is None else d),
    PlainSerializer(lambda d: d if isfinite(d) else None, when_used="json"),
]
Discarded = Literal["not_finite", "kl", "induce"]
KEPT = 3  # candidates, the best by first order, that are measured exactly at a time


class GridRow(Record):
    """One probe at one locus; probes.parquet is the table of them."""

    contrast: str
    site: str
    layer: int
    position: str
    probe: str
    chosen: bool  # the logistic probe that is best on validation prompts
    C: float | None  # of logistic probes only
    validation_auroc: float
    validation_d_prime: DPrime
    auroc: float  # on test prompts, as all that follows
    auroc_ci: tuple[float, float]
    balanced_accuracy: float
    recall_at_1pct_fpr: float
    n_positive: int
    n_negative: int
    groups_positive: float
    groups_negative: float

    @classmethod
    def table(cls, path: Path) -> list[GridRow]:
        """Read probes.parquet."""
        import pyarrow.parquet

        return [cls.model_validate(row) for row in pyarrow.parquet.read_table(path).to_pylist()]

    @property
    def shown(self) -> str:
        """The test AUROC with its interval, or that a class has too few test prompts for one."""
        if not enough(self.n_positive, self.n_negative):
            return f"too few ({self.n_positive} + {self.n_negative})"
        return "{:.3f} [{:.3f}, {:.3f}]".format(self.auroc, *self.auroc_ci)


class SiteRecord(GridRow):
    """The chosen probe of a contrast: its row of the grid, its baselines and its nulls."""

    ece: float | None  # of Platt-scaled probabilities; None without calibration prompts of both classes
    brier: float | None  # of the same probabilities
    bag_of_words_auroc: float
    length_auroc: float
    beats_bag_of_words: bool
    p_permutation: PValue  # test labels permuted within groups
    control_auroc: float | None  # on control tasks (a random label for each category); None without categories
    selectivity: float | None
    refitted_on_permuted_labels: NullAUROC
    difference_in_means: NullAUROC  # at the same locus: permuted-label and random-direction nulls


class CandidateRecord(Record):
    """A candidate write direction; None is a value that was not finite."""

    layer: int
    position: str
    bypass: float | None
    bypass_floored: float | None
    induce: float | None
    kl: float | None
    kl_max: float | None
    kl_first_token: float | None
    kl_worst_step: float | None
    discarded: Discarded | None


class ScreeningRecord(Record):
    """First-order against exact effects of the candidates: Pearson's r, None where too few or equal."""

    bypass_correlation: float | None
    induce_correlation: float | None
    used: bool  # whether only the best by first order are measured, for this direction and for its null
    permuted: tuple[float | None, float | None] | None = None  # the same r for one labelling outside the null


class WriteRecord(Record):
    """The write direction of one kind, or why there is none."""

    available: bool
    reason: str = ""
    locus: Locus | None = None
    written_from: str = ""
    meets_selection_rules: bool = False
    within_label: bool = False
    strata: tuple[str, ...] = ()
    n: int = 0
    mean_positive: float | None = None
    mean_negative: float | None = None
    kl_tokens: int = 0
    candidates: tuple[CandidateRecord, ...] = ()
    screening: ScreeningRecord | None = None


class OnsetRecord(Record):
    """The onset prefixes of one way of declining, and the share of such completions that they open."""

    prefixes: tuple[str, ...]
    coverage: float


class ProbeResults(Record):
    """stages/probe.json."""

    sites: dict[str, SiteRecord] = Field(default_factory=dict)
    best_loci: tuple[GridRow, ...] = ()
    writes: dict[Kind, WriteRecord] = Field(default_factory=dict)
    geometry: Geometry = Geometry()
    onsets: dict[str, OnsetRecord] = Field(default_factory=dict)
