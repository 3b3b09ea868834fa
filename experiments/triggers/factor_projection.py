"""Does who asks, a system line or an earlier turn move the projection, the action, or both?

Like requests are compared as for the action (`factors.observed`), in the parts that neither fit a direction nor set
its units. The shift is along `refusing` or `harmfulness` in units of the distance between their class means, so a
factor that acts through the refusing direction alone shifts it by about as much as it changes the rate of refusing.
`p_differs` tests that: whether refused - projection goes with the factor. What is not shown to move may still move:
there are fewer requests in those parts than the action is counted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import t as student

from experiments.factors.observed import FACTORS, PERMUTATIONS, Compared, Effect, like_requests, values_of
from experiments.run.corpus import Corpus
from experiments.triggers.projection import REPORTED, Projected
from probes.statistics.intervals import Interval
from probes.statistics.permutation import Units, holm, permuted_p
from probes.statistics.seeds import named_rng

ALPHA = 0.05
Moved = Literal["both", "action", "projection", "neither"]


@dataclass(frozen=True)
class Shift:
    """How far along one direction the requests with a value lie from those without."""

    factor: str
    value: str
    label: str
    direction: str
    difference: Interval  # in units of the distance between the class means
    n: int
    p: float
    p_differs: float  # of the action changing by as much as the projection shifts
    p_adjusted: float = float("nan")  # Holm over every shift
    p_differs_adjusted: float = float("nan")


def shifts(
    corpus: Corpus,
    refused: np.ndarray,
    judged: np.ndarray,
    effects: tuple[Effect, ...],
    best: Mapping[str, Projected],
    seed: int,
) -> list[Shift]:
    """Measure the shift of every effect that was tested on the action, along each direction.

    Effects whose requests have to be compared with others than the action's, for too few are left, are left out.

    Args:
        judged: rows whose action is known.
    """
    held = corpus.within(*REPORTED) & np.isin(np.arange(len(corpus)), judged)
    times = max(PERMUTATIONS, 100 * len(effects) * max(1, len(best)))  # so that the smallest p survives the correction
    labels = {"benign": corpus.requests, "harmful": corpus.harmful}
    found: list[Shift] = []
    for effect in effects:
        values = values_of(corpus, FACTORS[effect.factor])
        rows = np.flatnonzero(labels[effect.label] & held)
        like = like_requests(corpus, rows, values, effect.value)
        if like is None or like.compared_with != effect.compared_with:
            continue
        for projected in best.values():
            rng = named_rng(seed, "factor projection", len(found))
            found.append(_shift(corpus, refused, effect, projected, like, times, rng))
    adjusted, differing = holm([shift.p for shift in found]), holm([shift.p_differs for shift in found])
    return [replace(shift, p_adjusted=p, p_differs_adjusted=d)
            for shift, p, d in zip(found, adjusted, differing, strict=True)]  # fmt: skip


def _shift(
    corpus: Corpus,
    refused: np.ndarray,
    effect: Effect,
    projected: Projected,
    like: Compared,
    times: int,
    rng: np.random.Generator,
) -> Shift:
    groups, values = corpus.groups[like.rows], projected.values[like.rows]
    units, apart = (
        Units.of(groups, like.category, like.has, outcome) for outcome in (values, refused[like.rows] - values)
    )
    return Shift(
        effect.factor,
        effect.value,
        effect.label,
        projected.name,
        difference(values, groups, like),
        len(like.rows),
        permuted_p(units, times, rng),
        permuted_p(apart, times, rng),
    )


def difference(values: np.ndarray, groups: np.ndarray, like: Compared, alpha: float = ALPHA) -> Interval:
    """Return the difference of means, weighted by the categories of those with the value.

    The interval is Student's with the linearised variance of whole groups: what a group's prompts have in common, also
    across the two sides, is counted once.
    """
    names, code = np.unique(like.category, return_inverse=True)
    has, estimate = like.has, 0.0
    influence = np.zeros(len(values))
    for k in range(len(names)):
        inside = code == k
        weight = (inside & has).sum() / has.sum()
        for side, sign in ((inside & has, 1), (inside & ~has, -1)):
            mean = values[side].mean()
            estimate += sign * weight * mean
            influence[side] = sign * weight * (values[side] - mean) / side.sum()
    index = np.unique(groups, return_inverse=True)[1].reshape(-1)
    n = int(index.max() + 1)
    error = np.sqrt(n / (n - 1) * (np.bincount(index, influence) ** 2).sum())
    half = float(student.ppf(1 - alpha / 2, n - 1) * error)
    return Interval(float(estimate), float(estimate - half), float(estimate + half))


def add_shifts(records: dict[str, Any], found: list[Shift]) -> None:
    """Put the shifts beside the values in the factors' records, with what each value moved."""
    for name, record in records.items():
        for value in record["values"]:
            own = [s for s in found if (s.factor, s.value, s.label) == (name, value["value"], value["label"])]
            value["projection"] = {shift.direction: _record(shift) for shift in own}
            along = value["projection"].get("refusing")
            value["moved"] = None if along is None else _moved(value["moves"], along["moves"])


def _moved(action: bool, projection: bool) -> Moved:
    if action:
        return "both" if projection else "action"
    return "projection" if projection else "neither"


def _record(shift: Shift) -> dict[str, Any]:
    interval = shift.difference
    return {
        "difference": asdict(interval) | {"n": shift.n},
        "p": shift.p,
        "p_adjusted": shift.p_adjusted,
        "moves": shift.p_adjusted <= ALPHA,
        "p_differs_from_action": shift.p_differs,
        "p_differs_from_action_adjusted": shift.p_differs_adjusted,
    }
