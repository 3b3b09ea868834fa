"""Effects that keep a dissociation inconclusive, and how much more data each needs.

The estimates, taken as exact, point to one table of classes and its verdict. An undecided effect or contrast is open if
another class that its interval leaves possible would change that verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isinf

from experiments.dissociation.effects import EFFECT_KEYS, Effect, EffectKey, Quantity, stopped_by
from experiments.dissociation.power import SampleSize, contrast_sample_size, null_sample_size, rate_sample_size
from experiments.dissociation.verdict_rules import (
    EffectTable,
    Range,
    beyond_null,
    cell_range,
    contrast_name,
    effect_name,
    estimated_table,
    possible_cells,
    possible_sides,
    side_range,
    verdict_of,
)
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate


def open_effects(
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
    intervals: Mapping[Quantity, Estimate],
    beyond: Collection[EffectKey],
    margin: float,
    alpha: float,
    nonlinear: Collection[Kind] = (),
) -> list[tuple[str, SampleSize]]:
    """Return a reason and the required sample size for each effect or contrast that is still open.

    Args:
        intervals: of every contrast and effect.
        beyond: the effects that exceed their null.
    """
    aim = estimated_table(intervals, margin)
    wanted, reasons = _wanted(aim, intervals, margin, nonlinear), []
    for b in KINDS:
        if (where := wanted.get(b)) is not None:
            need = contrast_sample_size(
                contrast_name(b), _question(where, margin), *stopped_by(effects, b), n_groups[b], where, alpha
            )
            reasons.append((f"{b}: own minus other effect is {_shown(intervals[b], need)}", need))
    for key in EFFECT_KEYS:
        if (where := wanted.get(key)) is not None:
            need = rate_sample_size(
                effect_name(key), _question(where, margin), intervals[key].estimate, n_groups[key[1]], where, alpha
            )
            reasons.append(
                (f"{key[1]}: the share that ablating {key[0]} stops is {_shown(intervals[key], need)}", need)
            )
    verdict = verdict_of(aim, nonlinear)
    return reasons + [_null(key, effects[key], alpha) for key in beyond_null(verdict) if key not in beyond]


def _wanted(
    aim: EffectTable, intervals: Mapping[Quantity, Estimate], margin: float, nonlinear: Collection[Kind]
) -> dict[Quantity, Range]:
    """Return the range in which the interval of each open quantity would have to lie, by what it is of.

    Where no quantity alone changes the verdict, every undecided one is open.
    """
    cells = {key: possible_cells(intervals[key], margin) for key in EFFECT_KEYS}
    sides = {b: possible_sides(intervals[b], margin) for b in KINDS}
    verdict, open_only, undecided = verdict_of(aim, nonlinear), dict[Quantity, Range](), dict[Quantity, Range]()
    for b, of_side in sides.items():
        same = [s for s in of_side if verdict_of(replace(aim, sides={**aim.sides, b: s}), nonlinear) == verdict]
        if len(of_side) > 1:
            undecided[b] = side_range(aim.sides[b], margin)
        if len(same) < len(of_side):
            open_only[b] = _hull([side_range(side, margin) for side in same])
    for key, of_cell in cells.items():
        same_cells = [c for c in of_cell if verdict_of(replace(aim, cells={**aim.cells, key: c}), nonlinear) == verdict]
        if len(of_cell) > 1:
            undecided[key] = cell_range(aim.cells[key], margin)
        if len(same_cells) < len(of_cell):
            open_only[key] = _hull([cell_range(cell, margin) for cell in same_cells])
    return open_only or undecided


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _question(where: Range, margin: float) -> str:
    low, high = where
    if low == -margin and high == margin:
        return f"does it lie within the margin {margin:g}?"
    if isinf(high):
        return f"does it lie above {low:.3g}?"
    return f"does it lie below {high:.3g}?" if isinf(low) else f"does it lie between {low:.3g} and {high:.3g}?"


def _shown(interval: Estimate, need: SampleSize) -> str:
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]; {need.question} {need}"


def _null(key: EffectKey, effect: Effect, alpha: float) -> tuple[str, SampleSize]:
    direction, behaviour = key
    whose = "its effect" if direction == behaviour else f"the effect of ablating {direction}"
    question = "does it exceed that of permuted-label directions?"
    need = null_sample_size(f"null_{direction}_on_{behaviour}", question, effect.p_null, effect.n_null, alpha)
    reason = f"{behaviour}: {whose} is not beyond that of permuted-label directions (p = {effect.p_null})"
    return reason + (f"; {need}" if effect.n_null is not None else ""), need
