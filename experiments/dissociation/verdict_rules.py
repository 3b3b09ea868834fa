"""Map from effects to exactly one dissociation verdict.

The four effects (two ablated directions, two behaviours) and, on each behaviour, the contrast of the own direction's
effect with the other's are each put into a class:

- an effect is `none` if its interval lies below the margin, `full` if it lies above 1 - 2 margins, `partial` if it lies
  between the margin and 1 - margin;
- a contrast is `above` the margin, `within` plus or minus the margin, or `below` minus the margin;
- otherwise it is undecided: each class that its interval touches is possible.

`verdict_of` maps every table of classes to one verdict. If all possible tables have the same verdict, it is shown.

Levels. To show a wrong verdict, the interval of at least one quantity must miss the class of its true value. The
requirements of a verdict must hold together, so each is tested at the full level, and the verdict is wrong no more
often than the weakest of its tests (intersection-union, Berger 1982). The remaining alpha / 2 for each limit is needed:
in small samples the paired interval misses at one limit up to twice as often as its nominal level
(docs/notes/what-did-not-work.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Literal, get_args

from experiments.dissociation.power import ROUNDING, Range
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate

EffectKey = tuple[Kind, Kind]  # (ablated direction, behaviour of the decliners)
Quantity = EffectKey | Kind  # an effect; or a contrast (own direction's effect - the other's), by behaviour
EFFECT_KEYS: tuple[EffectKey, ...] = tuple(product(KINDS, KINDS))
DissociationVerdict = Literal[
    "double_dissociation",
    "graded_dissociation",
    "single_dissociation_normative",
    "single_dissociation_epistemic",
    "one_direction_normative",
    "one_direction_epistemic",
    "shared_knob",
    "no_effect",
    "nonlinear",
    "not_applicable",
    "inconclusive",
]
Cell = Literal["none", "partial", "full"]
Side = Literal["below", "within", "above"]


@dataclass(frozen=True)
class EffectTable:
    """The class of each effect, and of the contrast on each behaviour."""

    cells: Mapping[EffectKey, Cell]
    sides: Mapping[Kind, Side]

    def is_consistent(self, margin: float) -> bool:
        """Return whether each contrast can be the difference of its two effects."""

        def bounded(key: EffectKey) -> Range:
            low, high = cell_range(self.cells[key], margin)
            return max(0.0, low), min(1.0, high)

        for b in KINDS:
            (own_low, own_high), (other_low, other_high) = bounded((b, b)), bounded((other_kind(b), b))
            low, high = side_range(self.sides[b], margin)
            if own_low - other_high >= high or own_high - other_low <= low:
                return False
        return True


def other_kind(kind: Kind) -> Kind:
    """Return the other kind."""
    return "epistemic" if kind == "normative" else "normative"


def verdict_of(table: EffectTable, nonlinear: Collection[Kind] = ()) -> DissociationVerdict:
    """Return the verdict on a table of classes; `inconclusive` where the effects fit no pattern.

    Args:
        nonlinear: behaviours that the stream shows in a way that no direction does.
    """
    cells, sides = table.cells, table.sides
    if all(cells[key] == "none" for key in EFFECT_KEYS):
        return "nonlinear" if nonlinear else "no_effect"
    specific = [kind for kind in KINDS if sides[kind] == "above"]
    spared = {kind for kind in KINDS if cells[kind, other_kind(kind)] == "none"}
    if len(specific) == len(KINDS):
        return "double_dissociation" if len(spared) == len(KINDS) else "graded_dissociation"
    for kind in KINDS:
        both, others = ([cells[d, b] for b in KINDS] for d in (kind, other_kind(kind)))
        if both == ["full", "full"] and others == ["none", "none"]:
            return "one_direction_normative" if kind == "normative" else "one_direction_epistemic"
    if specific and specific[0] in spared:
        return "single_dissociation_normative" if specific[0] == "normative" else "single_dissociation_epistemic"
    if all(sides[b] == "within" for b in KINDS) and all(cells[key] != "none" for key in EFFECT_KEYS):
        return "shared_knob"
    return "inconclusive"


REASONS: Mapping[DissociationVerdict, str] = {
    "double_dissociation": "ablating each direction stops its own way of declining and not the other",
    "graded_dissociation": "ablating each direction stops more of its own way of declining than ablating the other "
    "direction does, but does not leave the other way alone",
    "single_dissociation_normative": "ablating the normative direction stops refusals and not abstentions; ablating "
    "the epistemic direction is not specific to abstentions",
    "single_dissociation_epistemic": "ablating the epistemic direction stops abstentions and not refusals; ablating "
    "the normative direction is not specific to refusals",
    "one_direction_normative": "ablating the normative direction stops both ways of declining, ablating the epistemic "
    "direction stops neither",
    "one_direction_epistemic": "ablating the epistemic direction stops both ways of declining, ablating the normative "
    "direction stops neither",
    "shared_knob": "ablating either direction stops both ways of declining, equally within the margin",
    "no_effect": "no ablation of one direction at its chosen layer stops declining by more than the margin",
    "nonlinear": "no ablation of one direction stops declining by more than the margin, though the stream shows "
    "declining in a way that no direction does",
}


NORMATIVE, EPISTEMIC = KINDS
BEYOND_NULL: Mapping[DissociationVerdict, tuple[EffectKey, ...]] = {
    "double_dissociation": ((NORMATIVE, NORMATIVE), (EPISTEMIC, EPISTEMIC)),
    "graded_dissociation": ((NORMATIVE, NORMATIVE), (EPISTEMIC, EPISTEMIC)),
    "single_dissociation_normative": ((NORMATIVE, NORMATIVE),),
    "single_dissociation_epistemic": ((EPISTEMIC, EPISTEMIC),),
    "one_direction_normative": ((NORMATIVE, NORMATIVE), (NORMATIVE, EPISTEMIC)),
    "one_direction_epistemic": ((EPISTEMIC, NORMATIVE), (EPISTEMIC, EPISTEMIC)),
    "shared_knob": EFFECT_KEYS,
}


def beyond_null(verdict: DissociationVerdict) -> tuple[EffectKey, ...]:
    """Return the effects that must exceed those of permuted-label directions for a verdict."""
    return BEYOND_NULL.get(verdict, ())


def rests_on(verdict: DissociationVerdict) -> tuple[Kind, ...]:
    """Return the directions that must meet the selection rules for a verdict.

    A single dissociation needs its own one alone. Of the other it says that no ablation is specific to its behaviour;
    where nothing at the candidate layers decides that behaviour, no direction induces it when added, and none can be
    asked to. Every other positive verdict says of both what they do.
    """
    if not beyond_null(verdict):
        return ()
    single = {"single_dissociation_normative": NORMATIVE, "single_dissociation_epistemic": EPISTEMIC}
    return (single[verdict],) if verdict in single else KINDS


# -- classes -----------------------------------------------------------------------------------------------------------


def cell_range(cell: Cell, margin: float) -> Range:
    """Return the open range in which an interval shows the class of an effect (above 1/3 margins, `full` is cut)."""
    ranges: dict[Cell, Range] = {
        "none": (-inf, margin),
        "partial": (margin, 1 - margin),
        "full": (max(1 - 2 * margin, margin) - ROUNDING, inf),  # the edge itself is full
    }
    return ranges[cell]


def side_range(side: Side, margin: float) -> Range:
    """Return the open range in which an interval shows the class of a contrast."""
    ranges: dict[Side, Range] = {"below": (-inf, -margin), "within": (-margin, margin), "above": (margin, inf)}
    return ranges[side]


def possible_cells(interval: Estimate, margin: float) -> tuple[Cell, ...]:
    """Return the class of an effect, or each class that it may have where it is undecided."""
    order: tuple[Cell, ...] = ("none", "full", "partial")  # an interval that shows full is not called partial
    shown = next((cell for cell in order if shows(interval, cell_range(cell, margin))), None)
    if shown is not None:
        return (shown,)
    return tuple(cell for cell in get_args(Cell) if _touches(interval, cell_range(cell, margin)))


def possible_sides(interval: Estimate, margin: float) -> tuple[Side, ...]:
    """Return the class of a contrast, or each class that it may have where it is undecided."""
    return tuple(side for side in get_args(Side) if _touches(interval, side_range(side, margin)))


def possible_tables(intervals: Mapping[Quantity, Estimate], margin: float) -> Iterator[EffectTable]:
    """Yield every table that the intervals of effects and contrasts leave possible."""
    cells = [possible_cells(intervals[key], margin) for key in EFFECT_KEYS]
    sides = [possible_sides(intervals[b], margin) for b in KINDS]
    for of_effects, of_contrasts in product(product(*cells), product(*sides)):
        table = EffectTable(
            dict(zip(EFFECT_KEYS, of_effects, strict=True)), dict(zip(KINDS, of_contrasts, strict=True))
        )
        if table.is_consistent(margin):
            yield table


def estimated_table(intervals: Mapping[Quantity, Estimate], margin: float) -> EffectTable:
    """Return the table of the estimates, taken as exact."""
    points = {name: Estimate(i.estimate, i.estimate, i.estimate) for name, i in intervals.items()}
    cells: dict[EffectKey, Cell] = {}
    for key in EFFECT_KEYS:  # among the classes that the interval leaves possible: `full` and `partial` overlap
        possible = possible_cells(intervals[key], margin)
        cells[key] = next((cell for cell in possible_cells(points[key], margin) if cell in possible), possible[0])
    return EffectTable(cells, {b: possible_sides(points[b], margin)[0] for b in KINDS})


def shows(interval: Estimate, where: Range) -> bool:
    """Return whether an interval lies in an open range."""
    return where[0] < interval.low and interval.high < where[1]


def _touches(interval: Estimate, where: Range) -> bool:
    return interval.low <= where[1] and where[0] <= interval.high
