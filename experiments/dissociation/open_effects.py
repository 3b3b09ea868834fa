"""Effects that keep a dissociation inconclusive, and how much more data each needs.

The estimates, taken as exact, point to at most one verdict. An effect is open if that verdict requires it and its
interval does not yet show it. If the estimates point to no verdict, every interval that contains a margin is open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isinf

from experiments.dissociation.effects import EFFECT_KEYS, Effect, EffectKey, stopped_by
from experiments.dissociation.power import SampleSize, contrast_sample_size, null_sample_size, rate_sample_size
from experiments.dissociation.verdict_rules import Range, Rule, contrast_name, effect_name, lies_inside, rules
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Interval


def open_effects(
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
    intervals: Mapping[str, Interval],
    beyond: Collection[EffectKey],
    margin: float,
    alpha: float,
) -> list[tuple[str, SampleSize]]:
    """Return a reason and the required sample size for each effect or contrast that is still open.

    Args:
        intervals: of every contrast and effect, by name.
        beyond: the effects that exceed their null.
    """
    aim = next((rule for rule in rules(margin) if rule.fits(intervals)), None) or _nearest(intervals, margin)
    wanted = {name: aim.ranges[name] for name in aim.missing(intervals)}
    found = []
    for b in KINDS:
        if (where := wanted.get(contrast_name(b))) is not None:
            need = contrast_sample_size(
                contrast_name(b), _question(where, margin), *stopped_by(effects, b), n_groups[b], where, alpha
            )
            found.append((f"{b}: own minus other effect is {_shown(intervals, need)}", need))
    for key in EFFECT_KEYS:
        name = effect_name(key)
        if (where := wanted.get(name)) is not None:
            need = rate_sample_size(
                name, _question(where, margin), intervals[name].estimate, n_groups[key[1]], where, alpha
            )
            found.append((f"{key[1]}: the share that ablating {key[0]} stops is {_shown(intervals, need)}", need))
    return found + [_null(key, effects[key], alpha) for key in aim.beyond_null if key not in beyond]


def _nearest(intervals: Mapping[str, Interval], margin: float) -> Rule:
    """Return a rule that requires, of each interval that contains a margin, the side its estimate is on."""
    sides = {name: _side(interval.estimate, margin, name) for name, interval in intervals.items()}
    return Rule("inconclusive", "", {n: side for n, side in sides.items() if _holds_edge(intervals[n], side)})


def _side(estimate: float, margin: float, name: str) -> Range:
    sides: list[Range] = (
        [(-inf, margin)] if name in map(effect_name, EFFECT_KEYS) else [(-inf, -margin), (-margin, margin)]
    )
    return next((side for side in sides if lies_inside(estimate, side)), (margin, inf))


def _holds_edge(interval: Interval, where: Range) -> bool:
    return any(interval.low <= edge <= interval.high for edge in where)


def _question(where: Range, margin: float) -> str:
    if not any(isinf(edge) for edge in where):
        return f"does it lie within the margin {margin:g}?"
    return f"does it lie above {where[0]:g}?" if isinf(where[1]) else f"does it lie below {where[1]:g}?"


def _shown(intervals: Mapping[str, Interval], need: SampleSize) -> str:
    interval = intervals[need.quantity]
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]; {need.question} {need}"


def _null(key: EffectKey, effect: Effect, alpha: float) -> tuple[str, SampleSize]:
    direction, behaviour = key
    whose = "its effect" if direction == behaviour else f"the effect of ablating {direction}"
    question = "does it exceed that of permuted-label directions?"
    need = null_sample_size(f"null_{direction}_on_{behaviour}", question, effect.p_null, effect.n_null, alpha)
    reason = f"{behaviour}: {whose} is not beyond that of permuted-label directions (p = {effect.p_null})"
    return reason + (f"; {need}" if effect.n_null is not None else ""), need
