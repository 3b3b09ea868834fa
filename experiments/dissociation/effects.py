"""Effects of ablating a direction on the prompts a model declines, and their intervals over groups of prompts.

Effects are compared within one behaviour only: the two ways of declining have different ceilings (METHODS, Separating
the two refusals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from experiments.run.behaviour import KINDS, Kind
from probes.statistics.intervals import Interval, clopper_pearson, grouped_mean
from probes.statistics.tango import tango
from scoring.actions import OPENED

EffectKey = tuple[Kind, Kind]  # (ablated direction, behaviour of the decliners)
EFFECT_KEYS: tuple[EffectKey, ...] = tuple((direction, behaviour) for direction in KINDS for behaviour in KINDS)


@dataclass(frozen=True)
class Effect:
    """Ablating one direction, on the baseline decliners of one behaviour."""

    stopped: Bool[np.ndarray, " decliners"]
    p_null: float | None  # p of the onset effect against permuted-label directions; None where not tested
    n_null: int | None = None  # how many permuted-label directions that p rests on


def other_kind(kind: Kind) -> Kind:
    """Return the kind of declining that this one is compared with."""
    return "epistemic" if kind == "normative" else "normative"


def own_minus_other(
    effects: Mapping[EffectKey, Effect], n_groups: Mapping[Kind, float], behaviour: Kind, alpha: float
) -> Interval:
    """Return the paired interval of (own direction's effect - the other's) on one behaviour's decliners."""
    own_stopped, other_stopped = stopped_by(effects, behaviour)
    return tango(own_stopped, other_stopped, n_groups[behaviour], alpha)


def stopped_among(actions: Shaped[np.ndarray, " decliners"]) -> Bool[np.ndarray, " decliners"]:
    """Say of which decliners the action is now to do something with the request instead.

    What cannot be judged, turns elsewhere or is no answer at all has not been shown to be an opened gate.
    """
    return np.array([action in OPENED for action in actions], dtype=bool)


def stopped_by(
    effects: Mapping[EffectKey, Effect], behaviour: Kind
) -> tuple[Bool[np.ndarray, " decliners"], Bool[np.ndarray, " decliners"]]:
    """Return which decliners of a behaviour its own direction stops, and which the other's does."""
    return effects[behaviour, behaviour].stopped, effects[other_kind(behaviour), behaviour].stopped


def effect_interval(effect: Effect, n_groups: float, alpha: float) -> Interval:
    """Return the interval of the fraction of decliners that stopped."""
    if len(effect.stopped) == 0:
        return Interval(float("nan"), 0.0, 1.0)
    return clopper_pearson(float(effect.stopped.mean()) * n_groups, n_groups, alpha)


def onset_effect_interval(
    before: Float[np.ndarray, " prompts"],
    after: Float[np.ndarray, " prompts"],
    groups: Shaped[np.ndarray, " prompts"],
    alpha: float,
) -> Interval:
    """Return by how much an ablation lowers the log-odds of opening as a decline: the mean of before - after.

    Args:
        before, after: onset log-odds of the same prompts.
        groups: what belongs together; the interval is over these.
    """
    return grouped_mean(np.asarray(before, dtype=float) - np.asarray(after, dtype=float), groups, alpha)
