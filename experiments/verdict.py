"""The dissociation verdict: pure rules over effects and their intervals (METHODS, Separating the two refusals)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from experiments.behaviour import KINDS, Kind
from probes.intervals import Interval, clopper_pearson, paired_difference

DissociationVerdict = Literal[
    "double_dissociation", "single_dissociation_normative", "single_dissociation_epistemic", "shared_knob", "no_effect",
    "not_applicable", "inconclusive",
]  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """Ablating one direction, on the baseline decliners of one behaviour."""

    stopped: np.ndarray  # (n_decliners,) bool: stopped declining
    p_null: float | None  # p of the onset effect against permuted-label directions; None where not tested


@dataclass(frozen=True)
class Verdict:
    """A verdict with the reasons for it, readable, and the contrasts it rests on."""

    verdict: DissociationVerdict
    reasons: tuple[str, ...]
    contrasts: Mapping[str, Interval] = field(default_factory=dict)


# One test of specificity and one of equivalence a behaviour, and four comparisons with the null.
N_CONTRASTS, N_NULLS = 2, 4


def judge_dissociation(
    effects: Mapping[tuple[Kind, Kind], Effect],
    n_groups: Mapping[Kind, float],
    absent: Mapping[Kind, str],
    unsound: Sequence[Kind] = (),
    *,
    margin: float,
    alpha: float,
) -> Verdict:
    """Apply the rules.

    Args:
        effects: keyed (ablated direction, behaviour of the decliners).
        n_groups: the effective number of groups among each behaviour's decliners; intervals count these, not rows.
        absent: behaviours (or their directions) that do not occur, with the reason.
        unsound: directions that met no selection rule, so that what they stop may be the model and not the declining.
    """
    if absent:
        return Verdict("not_applicable", tuple(absent.values()) + _lone_effect(effects, n_groups, alpha))
    level = alpha / N_CONTRASTS
    contrasts = {f"own_minus_other_on_{b}": own_minus_other(effects, n_groups, b, level) for b in KINDS}
    narrow = {b: own_minus_other(effects, n_groups, b, 2 * level) for b in KINDS}  # two one-sided tests
    beats = {key: effect.p_null is not None and effect.p_null <= alpha / N_NULLS for key, effect in effects.items()}
    specific = {b: contrasts[f"own_minus_other_on_{b}"].low > margin and beats[b, b] for b in KINDS}
    not_specific = {b: contrasts[f"own_minus_other_on_{b}"].high < margin for b in KINDS}
    verdict, reasons = _rule(effects, n_groups, specific, not_specific, narrow, beats, margin, level)
    if unsound and verdict not in ("inconclusive", "no_effect"):
        broken = f"no locus met the selection rules for the {' and the '.join(unsound)} write direction, so what its "
        return Verdict("inconclusive", (broken + "ablation stops may be the model itself",), contrasts)
    return Verdict(verdict, reasons, contrasts)


def own_minus_other(
    effects: Mapping[tuple[Kind, Kind], Effect], n_groups: Mapping[Kind, float], behaviour: Kind, alpha: float
) -> Interval:
    """Return the paired interval of (own direction's effect - the other's) on one behaviour's decliners."""
    other: Kind = "epistemic" if behaviour == "normative" else "normative"
    own_stopped, other_stopped = effects[behaviour, behaviour].stopped, effects[other, behaviour].stopped
    return paired_difference(own_stopped, other_stopped, n_groups[behaviour], alpha)


def effect_interval(effect: Effect, n_groups: float, alpha: float) -> Interval:
    """Return the interval of the fraction of decliners that stopped."""
    if len(effect.stopped) == 0:
        return Interval(float("nan"), 0.0, 1.0)
    return clopper_pearson(float(effect.stopped.mean()) * n_groups, n_groups, alpha)


def _rule(
    effects: Mapping[tuple[Kind, Kind], Effect],
    n_groups: Mapping[Kind, float],
    specific: dict[Kind, bool],
    not_specific: dict[Kind, bool],
    narrow: dict[Kind, Interval],
    beats: dict[tuple[Kind, Kind], bool],
    margin: float,
    level: float,
) -> tuple[DissociationVerdict, tuple[str, ...]]:
    singles: dict[Kind, DissociationVerdict] = {
        "normative": "single_dissociation_normative", "epistemic": "single_dissociation_epistemic",
    }  # fmt: skip
    if all(specific.values()):
        return "double_dissociation", ("each direction stops its own way of declining and not the other",)
    if all(beats.values()) and all(narrow[b].within(-margin, margin) for b in KINDS):
        return "shared_knob", ("either direction stops both ways of declining, equally within the margin",)
    if all(effect_interval(e, n_groups[b], level).high <= margin for (_, b), e in effects.items()):
        return "no_effect", ("no ablation at its chosen layer stops declining by more than the margin",)
    for one, other in (KINDS, KINDS[::-1]):
        if specific[one] and not_specific[other]:
            return singles[one], (f"only the {one} direction is specific to its own way of declining",)
    return "inconclusive", _what_is_missing(effects, beats, not_specific, narrow, n_groups, margin)


def _what_is_missing(
    effects: Mapping[tuple[Kind, Kind], Effect],
    beats: dict[tuple[Kind, Kind], bool],
    not_specific: dict[Kind, bool],
    narrow: dict[Kind, Interval],
    n_groups: Mapping[Kind, float],
    margin: float,
) -> tuple[str, ...]:
    reasons = []
    for b in KINDS:
        if narrow[b].low > margin and not beats[b, b]:
            reasons.append(
                f"{b}: its effect is not beyond that of permuted-label directions (p = {effects[b, b].p_null})"
            )
        elif narrow[b].low <= margin and not not_specific[b]:
            width = narrow[b].high - narrow[b].low
            wanted = max(int(np.ceil(n_groups[b] * (width / margin) ** 2)), int(n_groups[b]) + 1)
            reasons.append(
                f"{b}: own minus other effect is {narrow[b].estimate:.2f} [{narrow[b].low:.2f}, {narrow[b].high:.2f}], "
                f"neither beyond nor within the margin {margin:g}; about {wanted} independent "
                f"decliners would settle it (now {n_groups[b]:.0f})"
            )
    return tuple(reasons) or ("the effects fit none of the rules: see the matrix",)


def _lone_effect(
    effects: Mapping[tuple[Kind, Kind], Effect], n_groups: Mapping[Kind, float], alpha: float
) -> tuple[str, ...]:
    lines = []
    for kind in KINDS:
        if (kind, kind) in effects:
            interval = effect_interval(effects[kind, kind], n_groups[kind], alpha)
            lines.append(
                f"ablating the {kind} direction stops {interval.estimate:.0%} "
                f"[{interval.low:.0%}, {interval.high:.0%}] of its own behaviour; specificity is not testable"
            )
    return tuple(lines)
