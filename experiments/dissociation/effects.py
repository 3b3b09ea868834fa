"""Effects of directional ablation on the prompts that a model declines, with intervals over groups of prompts.

Effects are compared within one behaviour only, because the two ways of declining have different ceilings (METHODS,
Separating the two refusals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Estimate, clopper_pearson
from probes.statistics.tango import tango

EffectKey = tuple[Kind, Kind]  # (ablated direction, behaviour of the decliners)
Quantity = EffectKey | Kind  # an effect; or a contrast (own direction's effect - the other's), by behaviour
EFFECT_KEYS: tuple[EffectKey, ...] = tuple((direction, behaviour) for direction in KINDS for behaviour in KINDS)


@dataclass(frozen=True)
class Effect:
    """The effect of ablating one direction on the baseline decliners of one behaviour."""

    stopped: Bool[np.ndarray, " decliners"]
    p_null: float | None  # p of the onset effect against permuted-label directions; None if not tested
    n_null: int | None = None  # number of permuted-label directions behind that p
    n_labellings: float = float("inf")  # distinct labellings that those directions are drawn from


def other_kind(kind: Kind) -> Kind:
    """Return the other kind."""
    return "epistemic" if kind == "normative" else "normative"


def own_minus_other(
    effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], behaviour: Kind, alpha: float
) -> Estimate:
    """Return the paired interval of (own direction's effect - the other's) on one behaviour's decliners."""
    own_stopped, other_stopped = stopped_by(effects, behaviour)
    return tango(own_stopped, other_stopped, n_groups[behaviour], alpha)


def stopped_by(
    effects: Mapping[EffectKey, Effect], behaviour: Kind
) -> tuple[Bool[np.ndarray, " decliners"], Bool[np.ndarray, " decliners"]]:
    """Return which decliners of a behaviour stop under its own direction's ablation, and which under the other's."""
    return effects[behaviour, behaviour].stopped, effects[other_kind(behaviour), behaviour].stopped


def effect_interval(effect: Effect, n_groups: float, alpha: float) -> Estimate:
    """Return the interval of the fraction of decliners that stopped."""
    if len(effect.stopped) == 0:
        return Estimate(float("nan"), 0.0, 1.0)
    return clopper_pearson(float(effect.stopped.mean()) * n_groups, n_groups, alpha)
