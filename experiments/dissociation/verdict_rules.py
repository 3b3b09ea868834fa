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
from itertools import product
from math import inf
from typing import Literal

from experiments.dissociation.power import ROUNDING, Range, lies_in
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate

EffectKey = tuple[Kind, Kind]  # (ablated direction, behaviour of the decliners)
Quantity = EffectKey | Kind  # an effect; or a contrast (own direction's effect - the other's), by behaviour
EFFECT_KEYS: tuple[EffectKey, ...] = tuple(product(KINDS, KINDS))
QUANTITIES: tuple[Quantity, ...] = (*EFFECT_KEYS, *KINDS)
Table = Mapping[Quantity, str]  # the class of each
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

# The verdict on a table is that of the first row that fits. Columns are QUANTITIES: normative on refusals and on
# abstentions, epistemic on both; contrasts. `some` is partial or full; effects with * must exceed their null.
PATTERNS: Mapping[DissociationVerdict, tuple[str, ...]] = {
    "no_effect": ("none", "none", "none", "none", "any", "any"),
    "double_dissociation": ("any*", "none", "none", "any*", "above", "above"),
    "graded_dissociation": ("any*", "any", "any", "any*", "above", "above"),
    "one_direction_normative": ("full*", "full*", "none", "none", "any", "any"),
    "one_direction_epistemic": ("none", "none", "full*", "full*", "any", "any"),
    "single_dissociation_normative": ("any*", "none", "any", "any", "above", "any"),
    "single_dissociation_epistemic": ("any", "any", "none", "any*", "any", "above"),
    "shared_knob": ("some*", "some*", "some*", "some*", "within", "within"),
}
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


def other_kind(kind: Kind) -> Kind:
    """Return the other kind."""
    return "epistemic" if kind == "normative" else "normative"


def verdict_of(table: Table, nonlinear: Collection[Kind] = ()) -> DissociationVerdict:
    """Return the verdict on a table of classes; `inconclusive` where the effects fit no pattern.

    Args:
        nonlinear: behaviours that the stream shows in a way that no direction does.
    """
    for verdict, wanted in PATTERNS.items():
        if all(_fits(table[quantity], of) for quantity, of in zip(QUANTITIES, wanted, strict=True)):
            return "nonlinear" if nonlinear and verdict == "no_effect" else verdict
    return "inconclusive"


def _fits(name: str, wanted: str) -> bool:
    wanted = wanted.removesuffix("*")
    return wanted in ("any", name) or (wanted == "some" and name != "none")


def beyond_null(verdict: DissociationVerdict) -> tuple[EffectKey, ...]:
    """Return the effects that must exceed those of permuted-label directions for a verdict."""
    return tuple(key for key, of in zip(EFFECT_KEYS, PATTERNS.get(verdict, ()), strict=False) if of.endswith("*"))


def spares(verdict: DissociationVerdict) -> tuple[EffectKey, ...]:
    """Return the effects that a verdict says are none."""
    patterns = PATTERNS.get("no_effect" if verdict == "nonlinear" else verdict, ())
    return tuple(key for key, of in zip(EFFECT_KEYS, patterns, strict=False) if of == "none")


def rests_on(verdict: DissociationVerdict) -> tuple[Kind, ...]:
    """Return the directions that must meet the selection rules for a verdict.

    A single dissociation needs its own one alone. Of the other it says that no ablation is specific to its behaviour;
    where nothing at the candidate layers decides that behaviour, no direction induces it when added, and none can be
    asked to. Every other positive verdict says of both what they do.
    """
    beyond = beyond_null(verdict)
    return KINDS if len(beyond) > 1 else tuple(direction for direction, _ in beyond)


# -- classes -----------------------------------------------------------------------------------------------------------


def class_ranges(quantity: Quantity, margin: float) -> dict[str, Range]:
    """Return the open range in which an interval shows each class (above 1/3 margins, `full` is cut)."""
    if isinstance(quantity, str):
        return {"below": (-inf, -margin), "within": (-margin, margin), "above": (margin, inf)}
    full = max(1 - 2 * margin, margin) - ROUNDING  # the edge itself is full
    return {"none": (-inf, margin), "partial": (margin, 1 - margin), "full": (full, inf)}


def possible_classes(quantity: Quantity, interval: Estimate, margin: float) -> tuple[str, ...]:
    """Return the class of an effect or contrast, or each class that it may have where it is undecided."""
    ranges = class_ranges(quantity, margin)
    shown = [name for name, where in ranges.items() if lies_in(interval, where)]
    if shown:
        return (shown[-1],)  # an interval that shows full is not called partial
    return tuple(name for name, (low, high) in ranges.items() if interval.low <= high and low <= interval.high)


def is_consistent(table: Table, margin: float) -> bool:
    """Return whether each contrast can be the difference of its two effects."""
    for b in KINDS:
        keys: tuple[EffectKey, EffectKey] = (b, b), (other_kind(b), b)
        (own_low, own_high), (other_low, other_high) = (class_ranges(key, margin)[table[key]] for key in keys)
        low, high = class_ranges(b, margin)[table[b]]
        if max(0.0, own_low) - min(1.0, other_high) >= high or min(1.0, own_high) - max(0.0, other_low) <= low:
            return False
    return True


def possible_tables(intervals: Mapping[Quantity, Estimate], margin: float) -> Iterator[Table]:
    """Yield every table that the intervals of effects and contrasts leave possible."""
    classes = [possible_classes(quantity, intervals[quantity], margin) for quantity in QUANTITIES]
    tables = (dict(zip(QUANTITIES, names, strict=True)) for names in product(*classes))
    return (table for table in tables if is_consistent(table, margin))


def estimated_table(intervals: Mapping[Quantity, Estimate], margin: float) -> dict[Quantity, str]:
    """Return the table of the estimates, taken as exact."""
    table: dict[Quantity, str] = {}
    for quantity in QUANTITIES:  # among the classes that the interval leaves possible: `full` and `partial` overlap
        possible, point = possible_classes(quantity, intervals[quantity], margin), intervals[quantity].estimate
        exact = possible_classes(quantity, Estimate(point, point, point), margin)
        table[quantity] = next((name for name in exact if name in possible), possible[0])
    return table
