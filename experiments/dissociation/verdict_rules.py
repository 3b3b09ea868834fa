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

from experiments.dissociation.effects import EFFECT_KEYS, EffectKey, Quantity, other_kind
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate

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
Range = tuple[float, float]
ROUNDING = 1e-9  # an estimate this near to a margin counts as on the margin


@dataclass(frozen=True)
class EffectTable:
    """The class of each effect, and of the contrast on each behaviour."""

    cells: Mapping[EffectKey, Cell]
    sides: Mapping[Kind, Side]

    def is_consistent(self, margin: float) -> bool:
        """Return whether each contrast can be the difference of its two effects."""
        return all(_can_differ(*self._of(b), self.sides[b], margin) for b in KINDS)

    def _of(self, behaviour: Kind) -> tuple[Cell, Cell]:
        return self.cells[behaviour, behaviour], self.cells[other_kind(behaviour), behaviour]


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


def beyond_null(verdict: DissociationVerdict) -> tuple[EffectKey, ...]:
    """Return the effects that must exceed those of permuted-label directions for a verdict."""
    normative, epistemic = KINDS
    match verdict:
        case "double_dissociation" | "graded_dissociation":
            return (normative, normative), (epistemic, epistemic)
        case "single_dissociation_normative":
            return ((normative, normative),)
        case "single_dissociation_epistemic":
            return ((epistemic, epistemic),)
        case "one_direction_normative":
            return (normative, normative), (normative, epistemic)
        case "one_direction_epistemic":
            return (epistemic, normative), (epistemic, epistemic)
        case "shared_knob":
            return EFFECT_KEYS
        case "no_effect" | "nonlinear" | "not_applicable" | "inconclusive":
            return ()


def rests_on(verdict: DissociationVerdict) -> tuple[Kind, ...]:
    """Return the directions that must meet the selection rules for a verdict.

    A single dissociation needs its own one alone. Of the other it says that no ablation is specific to its behaviour;
    where nothing at the candidate layers decides that behaviour, no direction induces it when added, and none can be
    asked to. Every other positive verdict says of both what they do.
    """
    match verdict:
        case "single_dissociation_normative":
            return ("normative",)
        case "single_dissociation_epistemic":
            return ("epistemic",)
        case _:
            return KINDS if beyond_null(verdict) else ()


# -- classes -----------------------------------------------------------------------------------------------------------


def contrast_name(behaviour: Kind) -> str:
    """Name the contrast (own direction's effect - the other's) on a behaviour."""
    return f"own_minus_other_on_{behaviour}"


def effect_name(key: EffectKey) -> str:
    """Name one effect."""
    return f"ablate_{key[0]}_on_{key[1]}"


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
    cells = {key: _estimated_cell(intervals[key], points[key], margin) for key in EFFECT_KEYS}
    return EffectTable(cells, {b: possible_sides(points[b], margin)[0] for b in KINDS})


def _estimated_cell(interval: Estimate, point: Estimate, margin: float) -> Cell:
    """Return the class of an estimate, among those that its interval leaves possible: `full` and `partial` overlap."""
    possible = possible_cells(interval, margin)
    return next((cell for cell in possible_cells(point, margin) if cell in possible), possible[0])


def lies_inside(estimate: float, where: Range) -> bool:
    """Return whether an estimate lies inside a range, not on its edge."""
    return where[0] + ROUNDING < estimate < where[1] - ROUNDING


def shows(interval: Estimate, where: Range) -> bool:
    """Return whether an interval lies in an open range."""
    return where[0] < interval.low and interval.high < where[1]


def _touches(interval: Estimate, where: Range) -> bool:
    return interval.low <= where[1] and where[0] <= interval.high


def _can_differ(own: Cell, other: Cell, side: Side, margin: float) -> bool:
    (a, b), (c, d) = (_bounded(cell_range(cell, margin)) for cell in (own, other))
    low, high = side_range(side, margin)
    return a - d < high and low < b - c


def _bounded(where: Range) -> Range:
    return max(0.0, where[0]), min(1.0, where[1])
