"""Observed effects of asker, system line and earlier turns: on refusal rates, and on the projection on a direction.

Requests with a value are compared with requests without it within categories. The null permutes the values of whole
groups of minimal pairs among groups of equal composition, and within a group and category (`permutation`).
Projections are compared in held-out parts that neither fit a direction nor set its units (docs/triggers.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.stats import t as student

from experiments.factors.prompt_context import FACTORS, NO_VALUE, values_of
from experiments.factors.results import DirectionShift, ValueEffect
from experiments.run.corpus import Corpus
from probes.statistics.intervals import Estimate, combination
from probes.statistics.permutation import holm, permuted_p
from probes.statistics.seeds import named_rng

MIN_GROUPS = 5  # independent groups with a value, and as many without, before it is tested
ALPHA = 0.05
PERMUTATIONS = 1999  # at least; more where many values are tested, so that the smallest p can pass the correction


@dataclass(frozen=True)
class ObservedEffects:
    """All tested effects, and by factor the values that could not be tested with their number of groups."""

    effects: tuple[ValueEffect, ...]
    untested: dict[str, dict[str, int]]


def observe(
    corpus: Corpus, refused: Bool[np.ndarray, " n_prompts"], rows: Int[np.ndarray, " n_rows"], seed: int
) -> ObservedEffects:
    """Compare requests with each value of each factor with those without it, by label, among the rows to count."""
    compared: list[tuple[ValueEffect, MatchedRequests]] = []
    untested: dict[str, dict[str, int]] = {name: {} for name in FACTORS}
    requests = {"benign": rows[corpus.requests[rows]], "harmful": rows[corpus.harmful[rows]]}
    for factor, read in FACTORS.items():
        values, groups = values_of(corpus, read), defaultdict[str, set[int]](set)
        counted = np.concatenate(list(requests.values()))
        for value, group in zip(values[counted].tolist(), corpus.groups[counted].tolist(), strict=True):
            groups[value].add(group)
        for value in sorted(groups.keys() - {NO_VALUE}):
            tested = False
            for label, of_label in requests.items() if len(groups[value]) >= MIN_GROUPS else ():
                if (matched := matched_requests(corpus, of_label, values, value)) is not None:
                    name = {"factor": factor, "value": value, "label": label, "compared_with": matched.compared_with}
                    compared.append((ValueEffect(**name, **_standardised(corpus, refused, matched)), matched))
                    tested = True
            if not tested:
                untested[factor][value] = len(groups[value])
    return ObservedEffects(_tested(compared, corpus, refused, seed), untested)


def _tested(
    compared: list[tuple[ValueEffect, MatchedRequests]], corpus: Corpus, refused: np.ndarray, seed: int
) -> tuple[ValueEffect, ...]:
    """Return the effects with p-values, corrected over those whose outcome varies: the others cannot be significant."""
    varied = [i for i, (_, of) in enumerate(compared) if 0 < refused[of.rows].sum() < len(of.rows)]
    times, p = max(PERMUTATIONS, 100 * len(varied)), np.ones(len(compared))
    for i in varied:
        of = compared[i][1]
        rng = named_rng(seed, "factor", i)
        p[i] = permuted_p(of.has, refused[of.rows], corpus.groups[of.rows], of.category, times, rng)
    adjusted = np.ones(len(compared))
    adjusted[varied] = holm(p[varied].tolist())
    return tuple(
        effect.model_copy(update={"p": one, "p_adjusted": corrected, "moves": corrected <= ALPHA})
        for (effect, _), one, corrected in zip(compared, p.tolist(), adjusted.tolist(), strict=True)
    )


@dataclass(frozen=True)
class MatchedRequests:
    """Requests with and without a value, in the categories that hold both."""

    compared_with: str
    rows: Int[np.ndarray, " n_matched"]
    category: Shaped[np.ndarray, " n_matched"]  # of str
    has: Bool[np.ndarray, " n_matched"]


def matched_requests(
    corpus: Corpus, rows: Int[np.ndarray, " n_rows"], values: Shaped[np.ndarray, " n_prompts"], value: str
) -> MatchedRequests | None:
    """Return requests of one label with a value and those to compare: without any or, where too few, all others."""
    for compared_with in ("none", "others"):
        kept = rows if compared_with == "others" else rows[np.isin(values[rows], [value, NO_VALUE])]
        category = np.array([corpus.prompts[row].category or "" for row in kept])
        has = values[kept] == value
        shared = np.isin(category, list(set(category[has]) & set(category[~has])))
        kept, category, has = kept[shared], category[shared], has[shared]
        if min(corpus.n_groups(kept[has]), corpus.n_groups(kept[~has])) >= MIN_GROUPS:
            return MatchedRequests(compared_with, kept, category, has)
    return None


def _standardised(corpus: Corpus, refused: np.ndarray, matched: MatchedRequests) -> dict[str, Estimate]:
    """Return the rates with and without the value and their difference, weighted by the categories of those with it."""
    rows, category, has = matched.rows, matched.category, matched.has
    names = np.unique(category)
    weights = [float((category[has] == name).mean()) for name in names]
    with_value, without = (
        [corpus.rate(refused, rows[(category == name) & side]) for name in names] for side in (has, ~has)
    )
    of_value, of_others = (
        replace(combination(weights, rates), n=int(side.sum()), n_groups=corpus.n_groups(rows[side]))
        for rates, side in ((with_value, has), (without, ~has))
    )
    difference = combination([*weights, *(-w for w in weights)], [*with_value, *without])
    return {"with_value": of_value, "without": of_others, "difference": difference}


# -- shifts of the projection ------------------------------------------------------------------------------------------


def shifts(
    corpus: Corpus,
    refused: Bool[np.ndarray, " n_prompts"],
    rows: Int[np.ndarray, " n_rows"],
    effects: Sequence[ValueEffect],
    along: Mapping[str, Float[np.ndarray, " n_prompts"]],
    seed: int,
) -> list[dict[str, DirectionShift]]:
    """Measure the shift of every effect that was tested on the action, by direction; one entry an effect.

    It is empty where too few requests remain for the comparison that was made for the action.

    Args:
        rows: prompts whose action is known, in the parts that neither fit a direction nor set its units.
        along: projections of the prompts by direction; only those of requests are used.
    """
    held = np.isin(np.arange(len(corpus)), rows)
    times = max(PERMUTATIONS, 100 * len(effects) * max(1, len(along)))  # so that the smallest p can pass the correction
    labels = {"benign": corpus.requests, "harmful": corpus.harmful}
    tested: list[tuple[int, str, Estimate]] = []
    ps: list[tuple[float, float]] = []  # of the shift, and of its difference from the change of the action
    for i, effect in enumerate(effects):
        of_factor = values_of(corpus, FACTORS[effect.factor])
        matched = matched_requests(corpus, np.flatnonzero(labels[effect.label] & held), of_factor, effect.value)
        if matched is None or matched.compared_with != effect.compared_with:
            continue
        groups, did = corpus.groups[matched.rows], refused[matched.rows]
        for direction, projected in along.items():
            rng, values = named_rng(seed, "factor projection", len(tested)), projected[matched.rows]
            p, differs = (
                permuted_p(matched.has, of, groups, matched.category, times, rng) for of in (values, did - values)
            )
            tested.append((i, direction, difference(values, groups, matched).counted(len(values))))
            ps.append((p, differs))
    adjusted = [holm([pair[k] for pair in ps]) for k in (0, 1)]
    shifted: list[dict[str, DirectionShift]] = [{} for _ in effects]
    for k, (i, direction, change) in enumerate(tested):
        shifted[i][direction] = DirectionShift(
            difference=change,
            p=ps[k][0],
            p_adjusted=adjusted[0][k],
            moves=adjusted[0][k] <= ALPHA,
            p_differs_from_action=ps[k][1],
            p_differs_from_action_adjusted=adjusted[1][k],
        )
    return shifted


def difference(
    values: Float[np.ndarray, " n_matched"], groups: Int[np.ndarray, " n_matched"], matched: MatchedRequests
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
    half = float(student.ppf(1 - ALPHA / 2, n - 1) * error)
    return Estimate(float(estimate), float(estimate - half), float(estimate + half))
