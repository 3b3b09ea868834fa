"""Typed results on categories of declining: what was measured besides the outcomes, and the verdicts."""

from __future__ import annotations

from typing import Literal

from experiments.categories.members import DeclineSet
from experiments.probing.results import BoundaryRow
from extract.record import Record
from probes.statistics.intervals import Estimate

CategoryVerdict = Literal["one_knob", "distinct", "partly_shared", "no_effect", "not_applicable", "inconclusive"]
Shares = dict[str, dict[str, Estimate]]  # by one category, then another
Places = dict[str, tuple[BoundaryRow, ...]]  # of over-refused prompts at each layer, by category


class FoldRecord(Record):
    """Where the directions tested on one fold are written."""

    layer: int
    within_label: bool = True  # decliners were compared with answered prompts of their own label


class PairGeometry(Record):
    """How two categories' directions lie to each other."""

    cosine: Estimate  # corrected for sampling noise
    fitted_cosine: float
    p_permuted: float | None  # of the fitted cosine, against labels permuted with whole groups


class CategoryGeometry(Record):
    """The directions of all categories at one layer, fitted on all of their prompts."""

    layer: int
    position: str
    pairs: dict[str, PairGeometry]  # keyed "A and B"
    probe_auroc: Shares  # by the category a probe is fitted on, then the one that it is tested on, cross-fitted


class SetEffects(Record):
    """The measurements on all categories of one set of declines, besides the outcomes."""

    missing: dict[str, str]  # categories that cannot be tested, and why
    categories: tuple[str, ...] = ()  # those that are
    folds: tuple[FoldRecord, ...] = ()
    write_directions: CategoryGeometry | None = None
    read_directions: CategoryGeometry | None = None
    angles: tuple[float, ...] = ()  # of the normative direction to the span of the over-refusal ones, a fold each


class CategoryEffects(Record):
    """stages/category_effects.json."""

    normative: SetEffects
    epistemic: SetEffects
    over_refusal: SetEffects
    places: Places = {}


class TradeoffPoint(Record):
    """What one way at one strength does to prompts that were refused."""

    way: str
    strength: float
    over_refusal_gone: Estimate
    harmful_refusal_lost: Estimate
    holds: bool  # over-refusal falls, and harmful refusal falls by less than the margin


class Tradeoff(Record):
    """How much over-refusal goes at which loss of harmful refusal."""

    points: tuple[TradeoffPoint, ...]
    angles: tuple[float, ...]  # as in SetEffects, degrees
    recognised: dict[str, Estimate] = {}  # by label: refused prompts whose task is recognised


class PairResult(Record):
    """The verdict on two categories, and the intervals behind it."""

    between: tuple[str, str]
    verdict: CategoryVerdict
    p: float | None  # of the claim, Holm-corrected; None: inconclusive
    intervals: dict[str, Estimate]


class SetResult(Record):
    """The verdict on all categories of one set of declines."""

    verdict: CategoryVerdict
    reason: str
    missing: dict[str, str] = {}
    layers: tuple[int, ...] = ()  # of the folds
    matrix: Shares = {}  # by the ablated category, then the one whose declines stop
    controls: dict[str, Estimate] = {}  # by category: stopped by a direction of permuted labels
    common: dict[str, tuple[Estimate, ...]] = {}  # by category: stopped by the first 1, 2, … common directions
    pairs: tuple[PairResult, ...] = ()
    rank: int | None = None  # least number of directions beyond which no category gains
    rank_settled: bool = False  # it is also shown that the whole span gains less than the margin beyond the rank
    write_directions: CategoryGeometry | None = None
    read_directions: CategoryGeometry | None = None


class CategoryResults(Record):
    """stages/categories.json."""

    margin: float
    alpha: float
    variant: str
    normative: SetResult
    epistemic: SetResult
    over_refusal: SetResult  # refusals of benign prompts, by category (task)
    tradeoff: Tradeoff | None = None
    places: Places = {}

    def of(self, declines: DeclineSet) -> SetResult:
        result: SetResult = getattr(self, declines)
        return result
