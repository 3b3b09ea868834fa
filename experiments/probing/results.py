"""Typed results of probing: the probe grid, chosen loci, write directions, onsets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from experiments.probing.geometry_results import Geometry
from experiments.run.behaviour import Kind
from extract.record import Record
from probes.direction import Locus
from probes.grid.nulls import NullAUROC
from probes.statistics.metrics import enough
from probes.statistics.permutation import PValue

Discarded = Literal["not_finite", "kl", "induce"]
KEPT = 3  # candidates, the best by first order, that are measured exactly at a time


class GridRow(Record):
    """One probe at one locus, as in probes.parquet."""

    contrast: str
    site: str
    layer: int
    position: str
    probe: str
    chosen: bool
    C: float | None  # of logistic probes only
    validation_auroc: float
    validation_d_prime: float | None  # None if infinite; infinite in probes.parquet
    test_auroc: float
    test_auroc_low: float
    test_auroc_high: float
    balanced_accuracy: float
    recall_at_1pct_fpr: float
    n_positive: int
    n_negative: int
    groups_positive: float
    groups_negative: float


def auroc_text(auroc: float, low: float, high: float, n_positive: int | None, n_negative: int | None) -> str:
    """Return an AUROC with its interval, or that a class has too few samples for one."""
    if n_positive is not None and n_negative is not None and not enough(n_positive, n_negative):
        return f"too few ({n_positive} + {n_negative})"
    return f"{auroc:.3f} [{low:.3f}, {high:.3f}]"


class SiteRecord(Record):
    """The locus at which a label is read, chosen on validation prompts, and its probe's results on test prompts."""

    site: str
    layer: int
    position: str
    auroc: float
    auroc_ci: tuple[float, float]
    validation_auroc: float
    C: float
    balanced_accuracy: float
    recall_at_1pct_fpr: float
    ece: float | None
    brier: float | None
    n_test: int
    n_positive: int | None = None  # of the test prompts; None in files of earlier versions
    n_negative: int | None = None
    bag_of_words_auroc: float
    length_auroc: float
    beats_bag_of_words: bool
    p_permutation: PValue
    control_auroc: float | None
    selectivity: float | None
    refitted_on_permuted_labels: NullAUROC
    difference_in_means: NullAUROC

    @property
    def shown(self) -> str:
        """The test AUROC with its interval, or that a class has too few test prompts for one."""
        return auroc_text(self.auroc, *self.auroc_ci, self.n_positive, self.n_negative)


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
