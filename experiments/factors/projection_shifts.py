"""Shifts of the projection on a direction by asker, system line or earlier turns.

Requests are matched as for the action (`factors.observed`), in held-out parts that neither fit a direction nor set its
units. The unit is the distance between the class means along `refusing` or `harmfulness`, so a factor that acts through
the refusing direction alone shifts the projection by about as much as it changes the refusal rate. `p_differs` tests
this: whether refused - projection depends on the factor. A shift that is not significant may still exist, because these
parts hold fewer requests than the action is counted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import t as student

from experiments.factors.observed import PERMUTATIONS, FactorEffect, MatchedRequests, matched_requests
from experiments.factors.prompt_context import FACTORS, values_of
from experiments.run.corpus import Corpus
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import holm, permuted_p
from probes.statistics.seeds import named_rng

ALPHA = 0.05


@dataclass(frozen=True)
class Shift:
    """Difference of the projection on one direction between requests with a value and without it."""

    factor: str
    value: str
    label: str
    direction: str
    difference: Estimate  # in units of the distance between the class means
    n: int
    p: float
    p_differs: float  # null hypothesis: the action changes by as much as the projection shifts
    p_adjusted: float = float("nan")  # Holm over every shift
    p_differs_adjusted: float = float("nan")


def shifts(
    corpus: Corpus,
    refused: Bool[np.ndarray, " n_prompts"],
    rows: Int[np.ndarray, " n_rows"],
    effects: tuple[FactorEffect, ...],
    along: Mapping[str, Float[np.ndarray, " n_prompts"]],
    seed: int,
) -> list[Shift]:
    """Measure the shift of every effect that was tested on the action, along each direction.

    An effect is left out where too few requests remain for the comparison that was made for the action.

    Args:
        rows: prompts whose action is known, in the parts that neither fit a direction nor set its units.
        along: projections of the prompts by direction; only those of requests are used.
    """
    held = np.isin(np.arange(len(corpus)), rows)
    times = max(PERMUTATIONS, 100 * len(effects) * max(1, len(along)))  # so that the smallest p can pass the correction
    labels = {"benign": corpus.requests, "harmful": corpus.harmful}
    tested: list[Shift] = []
    for effect in effects:
        values = values_of(corpus, FACTORS[effect.factor])
        matched = matched_requests(corpus, np.flatnonzero(labels[effect.label] & held), values, effect.value)
        if matched is None or matched.compared_with != effect.compared_with:
            continue
        for direction, projected in along.items():
            rng = named_rng(seed, "factor projection", len(tested))
            tested.append(_shift(corpus, refused, effect, (direction, projected), matched, times, rng))
    adjusted, differing = holm([shift.p for shift in tested]), holm([shift.p_differs for shift in tested])
    return [
        replace(shift, p_adjusted=p, p_differs_adjusted=d)
        for shift, p, d in zip(tested, adjusted, differing, strict=True)
    ]


def _shift(
    corpus: Corpus,
    refused: np.ndarray,
    effect: FactorEffect,
    along: tuple[str, np.ndarray],
    matched: MatchedRequests,
    times: int,
    rng: np.random.Generator,
) -> Shift:
    direction, projected = along
    groups, values = corpus.groups[matched.rows], projected[matched.rows]
    return Shift(
        effect.factor,
        effect.value,
        effect.label,
        direction,
        difference(values, groups, matched),
        len(matched.rows),
        permuted_p(matched.has, values, groups, matched.category, times, rng),
        permuted_p(matched.has, refused[matched.rows] - values, groups, matched.category, times, rng),
    )


def difference(
    values: Float[np.ndarray, " n_matched"],
    groups: Int[np.ndarray, " n_matched"],
    matched: MatchedRequests,
    alpha: float = ALPHA,
) -> Estimate:
    """Return the difference of means, weighted by the categories of those with the value.

    The interval is Student's with the linearised variance of whole groups, so that correlation within a group, also
    across the two sides, is taken into account.
    """
    names, code = np.unique(matched.category, return_inverse=True)
    has, estimate = matched.has, 0.0
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
    return Estimate(float(estimate), float(estimate - half), float(estimate + half))
