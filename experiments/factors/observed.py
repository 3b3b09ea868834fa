"""Observed effects of asker, system line and earlier turns: refusal rates with and without each value.

Requests with a value are compared with requests without it within categories. The null permutes the values of whole
groups of minimal pairs among groups of equal composition, and within a group and category (`permutation`).
`experiments.factors.removal` measures the effect of removing one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int, Shaped

from experiments.factors.prompt_context import FACTORS, NO_VALUE, values_of
from experiments.run.corpus import Corpus
from probes.statistics.intervals import Estimate, combination, wilson
from probes.statistics.permutation import holm, permuted_p
from probes.statistics.seeds import named_rng

MIN_GROUPS = 5  # independent groups with a value, and as many without, before it is tested
PERMUTATIONS = 1999  # at least; more where many values are tested, so that the smallest p can pass the correction


@dataclass(frozen=True)
class FactorEffect:
    """Refusal rates of the requests of one label with a value and without it, within shared categories."""

    factor: str
    value: str
    label: str
    compared_with: str  # "none": requests without any value of this factor; "others": all without this one
    with_value: Estimate  # with its prompts and their groups
    without: Estimate
    difference: Estimate
    p: float = float("nan")
    p_adjusted: float = float("nan")  # over all tests of this module (Holm 1979)


@dataclass(frozen=True)
class ObservedEffects:
    """All tested effects, and by factor the values that could not be tested with their number of groups."""

    effects: tuple[FactorEffect, ...]
    untested: dict[str, dict[str, int]]


def observe(
    corpus: Corpus, refused: Bool[np.ndarray, " n_prompts"], rows: Int[np.ndarray, " n_rows"], seed: int
) -> ObservedEffects:
    """Compare benign and harmful requests with each value of each factor with those without it.

    Args:
        refused: over the corpus.
        rows: the prompts to count.
    """
    compared: list[tuple[FactorEffect, MatchedRequests]] = []
    untested: dict[str, dict[str, int]] = {name: {} for name in FACTORS}
    requests = {"benign": rows[corpus.requests[rows]], "harmful": rows[corpus.harmful[rows]]}
    for name, read in FACTORS.items():
        values = values_of(corpus, read)
        for value, n_groups in _groups_by_value(corpus, values, np.concatenate(list(requests.values()))).items():
            of_labels = requests.items() if n_groups >= MIN_GROUPS else ()
            tested = [_compare(corpus, refused, of, values, (name, value, label)) for label, of in of_labels]
            compared += [effect for effect in tested if effect is not None]
            if not any(tested):
                untested[name][value] = n_groups
    return ObservedEffects(_tested(compared, corpus, refused, seed), untested)


def _groups_by_value(corpus: Corpus, values: np.ndarray, rows: np.ndarray) -> dict[str, int]:
    groups: dict[str, set[int]] = defaultdict(set)
    for value, group in zip(values[rows].tolist(), corpus.groups[rows].tolist(), strict=True):
        groups[value].add(group)
    return {value: len(groups[value]) for value in sorted(groups) if value != NO_VALUE}


def _tested(
    compared: list[tuple[FactorEffect, MatchedRequests]], corpus: Corpus, refused: np.ndarray, seed: int
) -> tuple[FactorEffect, ...]:
    """Return the effects with p-values, corrected over those whose outcome varies: the others cannot be significant."""
    varied = [i for i, (_, of) in enumerate(compared) if 0 < refused[of.rows].sum() < len(of.rows)]
    times = max(PERMUTATIONS, 100 * len(varied))
    ps = [
        permuted_p(of.has, refused[of.rows], corpus.groups[of.rows], of.category, times, named_rng(seed, "factor", i))
        for i, (_, of) in enumerate(compared)
        if i in varied
    ]
    effects = [replace(effect, p=1.0, p_adjusted=1.0) for effect, _ in compared]
    for i, p, adjusted in zip(varied, ps, holm(ps), strict=True):
        effects[i] = replace(effects[i], p=p, p_adjusted=adjusted)
    return tuple(effects)


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
    """Return requests with a value and those to compare: without any value or, where too few, all others.

    Args:
        rows: the requests of one label.
        values: over the corpus; NO_VALUE where a prompt has none.
    """
    for compared_with in ("none", "others"):
        kept = rows if compared_with == "others" else rows[np.isin(values[rows], [value, NO_VALUE])]
        category = np.array([corpus.prompts[row].category or "" for row in kept])
        has = values[kept] == value
        shared = np.isin(category, list(set(category[has]) & set(category[~has])))
        kept, category, has = kept[shared], category[shared], has[shared]
        if min(corpus.n_groups(kept[has]), corpus.n_groups(kept[~has])) >= MIN_GROUPS:
            return MatchedRequests(compared_with, kept, category, has)
    return None


def _compare(
    corpus: Corpus, refused: np.ndarray, rows: np.ndarray, values: np.ndarray, name: tuple[str, str, str]
) -> tuple[FactorEffect, MatchedRequests] | None:
    matched = matched_requests(corpus, rows, values, name[1])
    if matched is None:
        return None
    rates = _standardised(corpus, refused, matched)
    return FactorEffect(*name, matched.compared_with, *rates), matched


def _standardised(corpus: Corpus, refused: np.ndarray, matched: MatchedRequests) -> tuple[Estimate, Estimate, Estimate]:
    """Return the rates with and without the value and their difference, weighted by the categories of those with it."""
    rows, category, has = matched.rows, matched.category, matched.has
    names = np.unique(category)
    weights = [float((category[has] == name).mean()) for name in names]
    with_value, without = (
        [_rate(corpus, refused, rows[(category == name) & side]) for name in names] for side in (has, ~has)
    )
    difference = combination([*weights, *(-w for w in weights)], [*with_value, *without])
    of_value, of_others = (
        replace(combination(weights, rates), n=int(side.sum()), n_groups=corpus.n_groups(rows[side]))
        for rates, side in ((with_value, has), (without, ~has))
    )
    return of_value, of_others, difference


def _rate(corpus: Corpus, refused: np.ndarray, rows: np.ndarray) -> Estimate:
    n = corpus.effective_groups(rows)
    return wilson(float(refused[rows].mean()) * n, n)
