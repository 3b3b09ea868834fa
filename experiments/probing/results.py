"""Typed results of probing: the probe grid, chosen loci, write directions, their geometry, onsets."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from experiments.run.behaviour import Basis, Kind
from extract.record import Record
from probes.direction import Locus
from probes.geometry.locus_geometry import LocusGeometry
from probes.grid.nulls import NullAUROC
from probes.statistics.intervals import NO_ESTIMATE, Estimate, Number
from probes.statistics.metrics import enough
from probes.statistics.permutation import PValue

DPrime = Annotated[  # infinite (null in JSON): both classes are without spread, such as one prompt of each
    float,
    BeforeValidator(lambda d: float("inf") if d is None else d),
    PlainSerializer(lambda d: d if isfinite(d) else None, when_used="json"),
]
Discarded = Literal["not_finite", "kl", "induce"]
MOST_LAYERS = 6  # that nested folds choose from, evenly in the middle of the model, where labels are read best
POSITIONS = ("inst_last", "post_last")
LOST = 0.07  # most of the answers that the model gets right to be above the threshold of silence
LEAST_RIGHT = 51  # right answers from which on that threshold has an upper limit
ALL = "all"  # the category of all uncertain prompts
MOST_LOCI = 80  # that are tried of a model that thinks: each takes new thoughts
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
        import pyarrow.parquet

        return [cls.model_validate(row) for row in pyarrow.parquet.read_table(path).to_pylist()]

    @property
    def shown(self) -> str:
        """The test AUROC with its interval, or that a class has too few test prompts for one."""
        if not enough(self.n_positive, self.n_negative):
            return f"too few ({self.n_positive} + {self.n_negative})"
        return f"{self.test:.3f}"

    @property
    def test(self) -> Estimate:
        """The AUROC on test prompts."""
        return Estimate(self.auroc, *self.auroc_ci)


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
    """A candidate write direction."""

    layer: int
    position: str
    bypass: Number
    bypass_floored: Number
    induce: Number
    kl: Number
    kl_max: Number
    kl_first_token: Number
    kl_worst_step: Number
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
    likely: float | None = None  # log-odds from which a decline counts as likely, where one is to be induced
    candidates: tuple[CandidateRecord, ...] = ()
    screening: ScreeningRecord | None = None


class OnsetRecord(Record):
    """The onset prefixes of one way of declining, and the share of such completions that they open."""

    prefixes: tuple[str, ...]
    coverage: float


@dataclass(frozen=True, kw_only=True)
class BoundaryRow(Estimate):
    """Where n over-refused prompts lie: 0 at answered benign ones, 1 at harmful ones."""

    layer: int
    position: str


class ReadWriteRow(Record):
    """The cosine of the read direction (of the label) and the write direction (of the behaviour) at one locus."""

    kind: Kind
    layer: int
    position: str
    cosine: float
    p: PValue
    n_permuted: int


@dataclass(frozen=True)
class GeometryAtLocus(LocusGeometry):
    """The geometry of the locus at which harmfulness is read."""

    read_against_write: tuple[ReadWriteRow, ...] = ()


class GeometryByLocus(Record):
    """stages/geometry.json."""

    loci: tuple[LocusGeometry, ...]
    read_against_write: tuple[ReadWriteRow, ...]

    def at(self, layer: int, position: str) -> GeometryAtLocus:
        empty = LocusGeometry(layer, position)
        measured = next((g for g in self.loci if (g.layer, g.position) == (layer, position)), empty)
        rows = tuple(row for row in self.read_against_write if (row.layer, row.position) == (layer, position))
        return GeometryAtLocus(**vars(measured), read_against_write=rows)


class StreamChange(Record):
    """Mean absolute change of the stream along one direction when another is ablated, and its null."""

    layer: int | None = None  # None: the average over the layers from the ablated one on
    change: Estimate
    null_95th_percentile: float | None
    p_null: float | None
    share: float | None = None  # of the average only: ratio to the change along the ablated direction itself
    by_layer: tuple[StreamChange, ...] = ()


class Independence(Record):
    """The change that ablating one direction makes to the stream along another."""

    ablated: Locus
    watched: Locus
    n: int
    n_null: int
    cosine: StreamChange
    projection: StreamChange  # in units of the gap between the watched direction's class means


class Geometry(Record):
    """Cosines between the fitted directions, and their independence under ablation."""

    cosine: float | None = None  # of the two write directions, at the normative one's locus
    cosine_by_layer: dict[str, float | None] = Field(default_factory=dict)
    independence: dict[str, Independence] | None = None
    over_refused_place: tuple[BoundaryRow, ...] = ()  # at each layer, at the normative read probe's position
    at_read_locus: GeometryAtLocus | None = Field(None, alias="read")


class CategoryReading(Record):
    """What is read of, and answered to, the uncertain prompts of one category and their twins; n of each."""

    category: str
    auroc: Estimate  # uncertain against their twins, by the probe of all categories
    auroc_own: Estimate = NO_ESTIMATE  # the same by a probe fitted to this category alone
    auroc_known: Estimate  # against those twins that the model knows
    abstained: Estimate
    abstained_under_line: Estimate | None = None  # where a system line that permits it was tried
    silent: Estimate  # answered firmly although read above the threshold that loses few of the right answers
    known: Estimate  # twins with a known answer whose plain answer is right


class UnspokenReads(Record):
    """Reads by nested folds over all prompts, and what the model says; the first category is all of them."""

    reason: str = ""  # why there are none
    normative: Estimate = NO_ESTIMATE  # AUROC of harmful against benign requests
    lost: Estimate = NO_ESTIMATE  # right answers above the threshold of the other folds
    categories: tuple[CategoryReading, ...] = ()


class ProbeResults(Record):
    """stages/probe.json."""

    basis: Basis = "wording"
    sites: dict[str, SiteRecord] = Field(default_factory=dict)
    best_loci: tuple[GridRow, ...] = ()
    writes: dict[Kind, WriteRecord] = Field(default_factory=dict)
    geometry: Geometry = Geometry()
    onsets: dict[str, OnsetRecord] = Field(default_factory=dict)
    unspoken: UnspokenReads = UnspokenReads()
