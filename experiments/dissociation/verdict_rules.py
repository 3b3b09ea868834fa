"""Requirements of each dissociation verdict: ranges in which intervals must lie, and effects beyond the null.

Levels. All requirements of a verdict must hold together, so each is tested at the full level, and the verdict is wrong
no more often than the weakest of its tests (intersection-union, Berger 1982). Verdicts exclude each other: a quantity
is above the margin or below it, never both, and the two limits of an interval at 1 - alpha share alpha between these.
A further correction for the number of behaviours or effects would gain nothing. The remaining alpha / 2 for each limit
is needed: in small samples the paired interval misses at one limit up to twice as often as its nominal level
(docs/notes/what-did-not-work.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from experiments.dissociation.effects import EFFECT_KEYS, EffectKey
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Interval

DissociationVerdict = Literal[
    "double_dissociation", "single_dissociation_normative", "single_dissociation_epistemic", "shared_knob", "no_effect",
    "not_applicable", "inconclusive",
]  # fmt: skip
Range = tuple[float, float]
ROUNDING = 1e-9  # an estimate this near to a margin counts as on the margin


@dataclass(frozen=True)
class Rule:
    """A verdict and its requirements."""

    verdict: DissociationVerdict
    reason: str
    ranges: Mapping[str, Range] = field(default_factory=dict)  # the open range each interval must lie in, by its name
    beyond_null: tuple[EffectKey, ...] = ()  # effects that must exceed their null

    def missing(self, intervals: Mapping[str, Interval]) -> list[str]:
        """List the intervals that do not lie in their required range."""
        return [name for name, (low, high) in self.ranges.items()
                if not (low < intervals[name].low and intervals[name].high < high)]  # fmt: skip

    def holds(self, intervals: Mapping[str, Interval], beyond: Collection[EffectKey]) -> bool:
        """Return whether all requirements are shown."""
        return not self.missing(intervals) and set(self.beyond_null) <= set(beyond)

    def fits(self, intervals: Mapping[str, Interval]) -> bool:
        """Return whether the estimates, taken as exact, satisfy the ranges of this verdict."""
        return all(lies_inside(intervals[name].estimate, where) for name, where in self.ranges.items())


def lies_inside(estimate: float, where: Range) -> bool:
    """Return whether an estimate lies inside a range, not on its edge."""
    return where[0] + ROUNDING < estimate < where[1] - ROUNDING


def contrast_name(behaviour: Kind) -> str:
    """Name the interval of (own direction's effect - the other's) on a behaviour."""
    return f"own_minus_other_on_{behaviour}"


def effect_name(key: EffectKey) -> str:
    """Name the interval of one effect."""
    return f"ablate_{key[0]}_on_{key[1]}"


def rules(margin: float) -> tuple[Rule, ...]:
    """Return the rules; no two of them can hold at once."""
    above, below, about = (margin, inf), (-inf, margin), (-margin, margin)
    normative, epistemic = KINDS
    return (
        Rule("double_dissociation", "each direction stops its own way of declining and not the other",
             {contrast_name(b): above for b in KINDS}, tuple((b, b) for b in KINDS)),
        Rule("single_dissociation_normative", "only the normative direction is specific to its own way of declining",
             {contrast_name(normative): above, contrast_name(epistemic): below}, ((normative, normative),)),
        Rule("single_dissociation_epistemic", "only the epistemic direction is specific to its own way of declining",
             {contrast_name(epistemic): above, contrast_name(normative): below}, ((epistemic, epistemic),)),
        Rule("no_effect", "no ablation at its chosen layer stops declining by more than the margin",
             {effect_name(key): below for key in EFFECT_KEYS}),
        Rule("shared_knob", "either direction stops both ways of declining, equally within the margin",
             {contrast_name(b): about for b in KINDS} | {effect_name(key): above for key in EFFECT_KEYS}, EFFECT_KEYS),
    )  # fmt: skip
