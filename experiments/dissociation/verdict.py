"""The dissociation verdict, from effects and their intervals (METHODS, Separating the two refusals)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.dissociation.effects import EFFECT_KEYS, Effect, EffectKey, Quantity, effect_interval, own_minus_other
from experiments.dissociation.open_effects import open_effects
from experiments.dissociation.power import SampleSize
from experiments.dissociation.verdict_rules import (
    REASONS,
    DissociationVerdict,
    beyond_null,
    possible_tables,
    rests_on,
    verdict_of,
)
from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import MIN_LABELLINGS, holm

_NO_LOCUS = "no locus met the selection rules for the {} write direction"
BREAKS = _NO_LOCUS + ", so its ablation may break the model itself"
INDUCES_NOT = _NO_LOCUS + ": none within the limit of KL induces declining when added"


@dataclass(frozen=True)
class Verdict:
    """A verdict with its reasons as text, its contrasts, and the sample sizes an inconclusive one needs."""

    verdict: DissociationVerdict
    reasons: tuple[str, ...]
    contrasts: Mapping[Kind, Estimate] = field(default_factory=dict)
    power: tuple[SampleSize, ...] = ()


def judge_dissociation(
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
    absent: Mapping[Kind, str],
    unsound: Sequence[Kind] = (),
    nonlinear: Collection[Kind] = (),
    *,
    weak: Sequence[Kind] = (),
    margin: float,
    alpha: float,
) -> Verdict:
    """Judge intervals at 1 - alpha and p values at alpha (see `verdict_rules` on levels).

    Args:
        effects: keyed (ablated direction, behaviour of the decliners).
        n_groups: the effective number of groups among each behaviour's decliners; intervals count groups, not rows.
        absent: behaviours (or their directions) that cannot be tested, with the reason.
        unsound: directions whose ablation may break the model itself: no locus was within the limit of KL.
        nonlinear: behaviours that the stream shows in a way that no direction does.
        weak: directions that induce no declining when added, at any locus within the limit of KL.
    """
    if absent:
        return Verdict("not_applicable", tuple(dict.fromkeys(absent.values())) + _one_effect(effects, n_groups, alpha))
    intervals, beyond = measure(effects, n_groups, alpha)
    contrasts = {kind: intervals[kind] for kind in KINDS}
    if few := _too_few_labellings(effects):
        return Verdict("inconclusive", few, contrasts)
    verdict = verdict_shown(intervals, beyond, margin, nonlinear)
    if verdict == "inconclusive":
        open_reasons = open_effects(effects, n_groups, intervals, beyond, margin, alpha, nonlinear)
        reasons = tuple(reason for reason, _ in open_reasons) or ("the effects fit no pattern: see the matrix",)
        return Verdict("inconclusive", reasons, contrasts, tuple(need for _, need in open_reasons))
    if not beyond_null(verdict):
        return Verdict(verdict, (REASONS[verdict],), contrasts)
    barring = [BREAKS.format(kind) for kind in unsound]
    barring += [INDUCES_NOT.format(kind) for kind in weak if kind in rests_on(verdict)]
    if barring:
        return Verdict("inconclusive", tuple(barring), contrasts)
    return Verdict(verdict, (REASONS[verdict], *map(INDUCES_NOT.format, weak)), contrasts)


def verdict_shown(
    intervals: Mapping[Quantity, Estimate],
    beyond: Collection[EffectKey],
    margin: float,
    nonlinear: Collection[Kind] = (),
) -> DissociationVerdict:
    """Return the verdict of all tables that the intervals leave possible, if it is one and its effects beat the null.

    Args:
        intervals: of every contrast and effect.
        beyond: the effects that exceed their null.
    """
    possible = {verdict_of(table, nonlinear) for table in possible_tables(intervals, margin)}
    verdict = possible.pop() if len(possible) == 1 else "inconclusive"
    return verdict if set(beyond_null(verdict)) <= set(beyond) else "inconclusive"


def _too_few_labellings(effects: Mapping[EffectKey, Effect]) -> tuple[str, ...]:
    """Return a reason for each direction whose null has too few distinct labellings; a p-value then says nothing."""
    too_few = {direction: e.n_labellings for (direction, _), e in effects.items() if e.n_labellings < MIN_LABELLINGS}
    return tuple(
        f"the groups of training prompts allow only {n:.0f} distinct permutations of the {kind} labels, and the null "
        f"needs {MIN_LABELLINGS:,}; give prompts of more pairs, entities or templates"
        for kind, n in too_few.items()
    )


def measure(
    effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], alpha: float
) -> tuple[dict[Quantity, Estimate], set[EffectKey]]:
    """Return the intervals of every contrast and effect, and the effects that exceed their null."""
    intervals: dict[Quantity, Estimate] = {b: own_minus_other(effects, n_groups, b, alpha) for b in KINDS}
    intervals |= {key: effect_interval(effects[key], n_groups[key[1]], alpha) for key in EFFECT_KEYS}
    return intervals, {key for key, e in effects.items() if e.p_null is not None and e.p_null <= alpha}


def corrected_p(effects: Mapping[EffectKey, Effect]) -> dict[EffectKey, float]:
    """Correct the p values of all effects together (Holm 1979), for a reader of a single effect.

    A verdict needs no correction, because all its requirements must hold together (see `verdict_rules`).
    """
    tested = {key: e.p_null for key, e in effects.items() if e.p_null is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def _one_effect(effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], alpha: float) -> tuple[str, ...]:
    lines = []
    for kind in KINDS:
        if (kind, kind) in effects:
            interval = effect_interval(effects[kind, kind], n_groups[kind], alpha)
            lines.append(
                f"ablating the {kind} direction stops {interval.estimate:.0%} "
                f"[{interval.low:.0%}, {interval.high:.0%}] of its own behaviour{_p_text(effects[kind, kind])}; "
                "specificity is not testable"
            )
    return tuple(lines)


def _p_text(effect: Effect) -> str:
    return "" if effect.p_null is None else f" (p = {effect.p_null:.3f} against permuted-label directions)"
