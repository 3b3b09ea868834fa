"""The dissociation verdict, from effects and their intervals (METHODS, Separating the two refusals).

An inconclusive verdict says which effects are open, and how much more data each needs: an undecided effect or contrast
is open if another class that its interval leaves possible would change the verdict of the estimates taken as exact.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isinf
from typing import Self, TypeVar

import numpy as np
from jaxtyping import Bool, Shaped

from experiments.dissociation.power import (
    DECLINERS,
    DIRECTIONS,
    Range,
    SampleSize,
    needed_for_contrast,
    needed_for_null,
    needed_for_rate,
)
from experiments.dissociation.results import NullRecord
from experiments.dissociation.verdict_rules import (
    EFFECT_KEYS,
    REASONS,
    DissociationVerdict,
    EffectKey,
    Quantity,
    Table,
    beyond_null,
    class_ranges,
    estimated_table,
    other_kind,
    possible_classes,
    possible_tables,
    rests_on,
    spares,
    verdict_of,
)
from experiments.run.behaviour import DECLINES, KINDS, Kind
from experiments.run.outcomes import Outcomes
from probes.statistics.intervals import Estimate, clopper_pearson, mean_over_groups, tango_of_shares
from probes.statistics.permutation import MIN_LABELLINGS, holm
from scoring.actions import DECLINED, OPENED

Key = TypeVar("Key", bound=Hashable)  # of an effect
_NO_LOCUS = "no locus met the selection rules for the {} write direction, in one half of the prompts at least"
BREAKS = _NO_LOCUS + ", so its ablation may break the model itself"
INDUCES_NOT = _NO_LOCUS + ": none within the limit of KL induces declining when added"
TURNS = "ablating the {} direction turns {:.0%} of the {} into {}"
MANY_TURNED = 0.2  # share of declines that turn into the other kind, from which a reason says so
NO_PATTERN = "no number would settle it: as estimated the effects fit no pattern"
BARRED = "by the effects alone, {}; what follows keeps it from a verdict"
GARBLES = "ablating the {} direction leaves {:.0%} of the {} neither answered nor declined, which does not spare them"


@dataclass(frozen=True)
class Effect:
    """The effect of ablating one direction on the baseline decliners of one behaviour, a mean over their groups."""

    stopped: Bool[np.ndarray, " decliners"]
    p_null: float | None  # p of the onset effect against permuted-label directions; None if not tested
    n_null: int | None = None  # number of permuted-label directions behind that p
    n_labellings: float = float("inf")  # distinct labellings that those directions are drawn from
    n_exceeding: int = 0  # of those directions, with at least this effect
    groups: Shaped[np.ndarray, " decliners"] | None = None  # None: each decliner is its own
    neither: Bool[np.ndarray, " decliners"] | None = None  # no longer declined, and not answered; None: none is

    @classmethod
    def of(cls, became: Outcomes, null: NullRecord | None, groups: Shaped[np.ndarray, " decliners"]) -> Self:
        """Return the effect on decliners from what they become."""
        stopped, tested = became.hits(OPENED), (None,) if null is None else null.tested()
        return replace(cls(stopped, *tested), groups=groups, neither=~(stopped | became.hits(DECLINED)))

    def interval(self, n_groups: float, alpha: float) -> Estimate:
        """Return the interval of the fraction of decliners that stopped."""
        if not len(self.stopped):
            return clopper_pearson(0, 0, alpha)
        return clopper_pearson(mean_over_groups(self.stopped, self.groups) * n_groups, n_groups, alpha)


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
    null_alpha: float | None = None,
) -> Verdict:
    """Judge intervals at 1 - alpha and p values at alpha, or another level (see `verdict_rules` on levels).

    Args:
        effects: keyed (ablated direction, behaviour of the decliners).
        n_groups: the number of groups among each behaviour's decliners; intervals count groups, not rows.
        absent: behaviours (or their directions) that cannot be tested, with the reason.
        unsound: directions whose ablation may break the model itself: no locus was within the limit of KL.
        nonlinear: behaviours that the stream shows in a way that no direction does.
        weak: directions that induce no declining when added, at any locus within the limit of KL.
    """
    if absent:
        return Verdict("not_applicable", (*dict.fromkeys(absent.values()), *_own_effects(effects, n_groups, alpha)))
    null_alpha = alpha if null_alpha is None else null_alpha
    intervals, beyond = measure(effects, n_groups, alpha, null_alpha)
    contrasts = {kind: intervals[kind] for kind in KINDS}
    if few := _too_few_labellings(effects):
        return Verdict("inconclusive", few, contrasts)
    verdict = verdict_shown(intervals, beyond, margin, nonlinear)
    aim = verdict_of(estimated_table(intervals, margin), nonlinear) if verdict == "inconclusive" else verdict
    barring = [*_garbled(effects, spares(aim), margin)]
    if aim == "inconclusive" or beyond_null(aim):
        barring += [BREAKS.format(kind) for kind in unsound]
        lacking = [kind for kind in weak if kind in (rests_on(aim) or KINDS)]
        barring += [INDUCES_NOT.format(" and the ".join(lacking))] if lacking else []
    if verdict == "inconclusive":
        reasons = dict(open_effects(effects, n_groups, intervals, beyond, margin, alpha, null_alpha, nonlinear))
        found = tuple(reasons) or ("the effects fit no pattern: see the matrix",)
        return Verdict(verdict, (*found, *barring), contrasts, (*reasons.values(),))
    if barring:
        return Verdict("inconclusive", (BARRED.format(REASONS[verdict]), *barring), contrasts)
    more = map(INDUCES_NOT.format, weak) if beyond_null(verdict) else ()
    return Verdict(verdict, (REASONS[verdict], *more), contrasts)


def verdict_shown(
    intervals: Mapping[Quantity, Estimate],
    beyond: Collection[EffectKey],
    margin: float,
    nonlinear: Collection[Kind] = (),
) -> DissociationVerdict:
    """Return the verdict of all tables that intervals leave possible, if it is one and its effects beat the null."""
    possible = {verdict_of(table, nonlinear) for table in possible_tables(intervals, margin)}
    verdict = possible.pop() if len(possible) == 1 else "inconclusive"
    return verdict if set(beyond_null(verdict)) <= set(beyond) else "inconclusive"


def measure(
    effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], alpha: float, null_alpha: float | None = None
) -> tuple[dict[Quantity, Estimate], set[EffectKey]]:
    """Return the intervals of every contrast and effect, and the effects that exceed their null."""
    intervals: dict[Quantity, Estimate] = {b: tango_of_shares(*_only(effects, b), n_groups[b], alpha) for b in KINDS}
    intervals |= {key: effects[key].interval(n_groups[key[1]], alpha) for key in EFFECT_KEYS}
    level = alpha if null_alpha is None else null_alpha
    return intervals, {key for key, e in effects.items() if e.p_null is not None and e.p_null <= level}


def corrected_p(effects: Mapping[Key, Effect]) -> dict[Key, float]:
    """Correct the p values of all effects together (Holm 1979), for a reader of a single effect.

    A verdict needs no correction, because all its requirements must hold together (see `verdict_rules`).
    """
    tested = {key: e.p_null for key, e in effects.items() if e.p_null is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def _only(effects: Mapping[EffectKey, Effect], behaviour: Kind) -> tuple[float, float]:
    """Return the shares of decliners that stop under their own direction's ablation only, and under the other's."""
    own, other = effects[behaviour, behaviour], effects[other_kind(behaviour), behaviour]
    a, b = (mean_over_groups(x.stopped & ~y.stopped, own.groups) for x, y in ((own, other), (other, own)))
    return a, b


def _too_few_labellings(effects: Mapping[EffectKey, Effect]) -> tuple[str, ...]:
    """Return a reason for each direction whose null has too few distinct labellings; a p-value then says nothing."""
    too_few = {direction: e.n_labellings for (direction, _), e in effects.items() if e.n_labellings < MIN_LABELLINGS}
    return tuple(
        f"the groups of training prompts allow only {n:.0f} distinct permutations of the {kind} labels, and the null "
        f"needs {MIN_LABELLINGS:,}; give prompts of more pairs, entities or templates"
        for kind, n in too_few.items()
    )


def _garbled(effects: Mapping[EffectKey, Effect], spared: Collection[EffectKey], margin: float) -> Iterator[str]:
    """Yield a reason for each behaviour that a verdict takes to be spared, and that often becomes no answer at all."""
    for ablated, b in spared:
        effect = effects[ablated, b]
        if effect.neither is not None and (share := mean_over_groups(effect.neither, effect.groups)) > margin:
            yield GARBLES.format(ablated, share, DECLINES[b])


def _own_effects(effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], alpha: float) -> Iterator[str]:
    for kind in KINDS:
        if (effect := effects.get((kind, kind))) is not None:
            p = "" if effect.p_null is None else f" (p = {effect.p_null:.3f} against permuted-label directions)"
            yield (
                f"ablating the {kind} direction stops {effect.interval(n_groups[kind], alpha):.0%} of its own "
                f"behaviour{p}; specificity is not testable"
            )


# -- open effects ------------------------------------------------------------------------------------------------------


def open_effects(
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
    intervals: Mapping[Quantity, Estimate],
    beyond: Collection[EffectKey],
    margin: float,
    alpha: float,
    null_alpha: float,
    nonlinear: Collection[Kind],
) -> Iterator[tuple[str, SampleSize]]:
    """Yield a reason and the required sample size for each effect or contrast that is still open."""
    aim = estimated_table(intervals, margin)
    fits = verdict_of(aim, nonlinear) != "inconclusive"
    for quantity, where in _wanted(aim, intervals, margin, nonlinear).items():
        question, interval = _question(where, margin), intervals[quantity]
        if isinstance(quantity, str):
            b, what, name = quantity, "own minus other effect", f"own_minus_other_on_{quantity}"
            needed = needed_for_contrast(*_only(effects, b), n_groups[b], where, alpha)
        else:
            (ablated, b), name = quantity, f"ablate_{quantity[0]}_on_{quantity[1]}"
            what = f"the share that ablating {ablated} stops"
            needed = needed_for_rate(interval.estimate, n_groups[b], where, alpha)
        need = SampleSize.of(name, question, DECLINERS, n_groups[b], needed if fits else NO_PATTERN)
        yield f"{b}: {what} is {interval:.2f}; {question} {need}", need
    for ablated, b in beyond_null(verdict_of(aim, nonlinear)):
        if (ablated, b) in beyond:
            continue
        effect, whose = effects[ablated, b], "its effect" if ablated == b else f"the effect of ablating {ablated}"
        question, needed = (
            "does it exceed that of permuted-label directions?",
            needed_for_null(effect.n_exceeding, effect.n_null, null_alpha),
        )
        need = SampleSize.of(f"null_{ablated}_on_{b}", question, DIRECTIONS, effect.n_null or 0, needed)
        if effect.p_null is None:
            yield f"{b}: {whose} was not compared with that of permuted-label directions", need
        else:
            beyond_which = f"{b}: {whose} is not beyond that of permuted-label directions (p = {effect.p_null:.3g})"
            yield beyond_which + (f"; {need}" if effect.n_null is not None else ""), need


def _wanted(
    aim: Table, intervals: Mapping[Quantity, Estimate], margin: float, nonlinear: Collection[Kind]
) -> dict[Quantity, Range]:
    """Return the range in which the interval of each open quantity would have to lie, by what it is of.

    That of the estimates' verdict, or, where they fit no pattern, of any. Where no quantity alone changes the verdict,
    every undecided one is open.
    """
    verdict, open_only, undecided = verdict_of(aim, nonlinear), dict[Quantity, Range](), dict[Quantity, Range]()

    def shown(of: DissociationVerdict) -> bool:
        return of != "inconclusive" if verdict == "inconclusive" else of == verdict

    for quantity in (*KINDS, *EFFECT_KEYS):
        ranges, possible = class_ranges(quantity, margin), possible_classes(quantity, intervals[quantity], margin)
        same = [ranges[name] for name in possible if shown(verdict_of({**aim, quantity: name}, nonlinear))]
        if len(possible) > 1:
            undecided[quantity] = ranges[aim[quantity]]
        if 0 < len(same) < len(possible):
            open_only[quantity] = min(low for low, _ in same), max(high for _, high in same)
    return open_only or undecided


def _question(where: Range, margin: float) -> str:
    low, high = where
    if (low, high) == (-margin, margin):
        return f"does it lie within the margin {margin:g}?"
    if isinf(high):
        return f"does it lie above {low:.3g}?"
    return f"does it lie below {high:.3g}?" if isinf(low) else f"does it lie between {low:.3g} and {high:.3g}?"
