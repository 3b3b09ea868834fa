"""Observed effects of asker, system line and earlier turns: real effects are found, absent ones are not."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from experiments.factors.judge import judge_factors
from experiments.factors.observed import MatchedRequests, ObservedEffects, difference, observe, shifts
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt
from tests.support.draws import draws

ASKERS = (None, None, None, "as a doctor", "as a gangster")
LINES = (None, None, "be careful", "be kind")


def prompt(group: int, harmful: bool, asker: str | None = None, line: str | None = None, **more: str) -> Prompt:
    system = ({"role": "system", "content": line},) if line else ()
    label = "harmful" if harmful else "benign"
    return Prompt(
        id=f"{group}-{harmful}", messages=(*system, {"role": "user", "content": f"x {group} {harmful}"}), label=label,
        right_action="refuse" if harmful else "answer", intent=label, pair=str(group), persona=asker, **more,
    )  # fmt: skip


def corpus_of(prompts: list[Prompt]) -> Corpus:
    groups = np.array([int(p.pair or 0) for p in prompts])
    return Corpus(tuple(prompts), groups, np.full(len(prompts), "test", dtype=object))


def asked(n_groups: int, seed: int = 0) -> Corpus:
    """A benign and a harmful request a group, both from one asker under one system line."""
    rng = np.random.default_rng(seed)
    who = [(ASKERS[rng.integers(5)], LINES[rng.integers(4)]) for _ in range(n_groups)]
    return corpus_of([prompt(g, harmful, *who[g]) for g, harmful in product(range(n_groups), (False, True))])


def observed(corpus: Corpus, refused: np.ndarray) -> ObservedEffects:
    return observe(corpus, refused, np.arange(len(corpus)), seed=0)


def test_the_asker_who_moves_refusing_is_told_from_the_one_who_does_not() -> None:
    corpus = asked(150)
    refused = np.array([p.label == "harmful" or p.persona == "as a gangster" for p in corpus.prompts])
    found = observed(corpus, refused)
    assert {(e.value, e.label) for e in found.effects if e.p_adjusted <= 0.05} == {("as a gangster", "benign")}
    (effect,) = (e for e in found.effects if e.p_adjusted <= 0.05)
    assert (effect.with_value.estimate, effect.without.estimate) == (1, 0)
    gangsters = sum(p.label == "benign" and p.persona == "as a gangster" for p in corpus.prompts)
    others = sum(p.label == "benign" and p.persona is None for p in corpus.prompts)
    for rate, n in ((effect.with_value, gangsters), (effect.without, others)):
        assert (rate.n, rate.n_groups) == (n, n)  # one benign request a group
    assert 0.5 < effect.difference.low < effect.difference.high <= 1
    assert effect.compared_with == "none"
    results = judge_factors(found, {})
    assert [results[name].moves for name in ("asker", "system", "earlier_turns")] == [True, False, None]
    assert results["asker"].reason.startswith("benign requests with 'as a gangster' are refused at 100%, comparable")
    assert "observed only" in results["asker"].reason
    assert results["earlier_turns"].reason == "no request has earlier turns"


def test_values_in_few_groups_are_listed_not_tested() -> None:
    prompts = [prompt(g, False, "as a king" if g < 4 else None) for g in range(30)]
    prompts += [replace(prompts[0], id=f"again-{i}") for i in range(20)]  # many prompts, still four groups
    found = observed(corpus_of(prompts), np.array([p.persona is not None for p in prompts]))
    assert not found.effects
    assert found.untested["asker"] == {"as a king": 4}
    result = judge_factors(found, {})["asker"]
    assert result.moves is None
    assert "no value occurs in 5 independent groups" in result.reason


def test_values_are_compared_with_the_others_where_everybody_names_one_and_not_across_categories() -> None:
    prompts = [prompt(g, False, "as a doctor" if g % 2 else "as a gangster") for g in range(60)]
    refused = np.array([p.persona == "as a gangster" for p in prompts])
    effects = observed(corpus_of(prompts), refused).effects
    assert {(e.compared_with, e.p_adjusted <= 0.05) for e in effects} == {("others", True)}
    found = observed(corpus_of([replace(p, category=p.persona) for p in prompts]), refused)
    assert not found.effects
    assert "no value has comparable requests without it" in judge_factors(found, {})["asker"].reason


@draws(10, 40)
@pytest.mark.parametrize("rate", [0.05, 0.35])
def test_shuffled_factors_seldom_seem_to_move_anything(rate, n_draws) -> None:
    """Groups refuse whole or not at all; over all values of all factors together at most one table in twenty errs."""
    rng, seen = np.random.default_rng(5), 0
    for seed in range(n_draws):
        corpus = asked(80, seed)
        refused = (rng.random(80) < rate)[corpus.groups]
        seen += any(e.p_adjusted <= 0.05 for e in observed(corpus, refused).effects)
    assert seen <= {10: 3, 40: 6}[n_draws]  # one in twenty expected


CORPUS = asked(150)
DOCTOR = np.array([p.persona == "as a doctor" for p in CORPUS.prompts])
HARMFUL = CORPUS.harmful
REPORTED = np.arange(len(CORPUS))  # all of them are test prompts


def moved(refused: np.ndarray, values: np.ndarray) -> dict[str, str]:
    """Return what 'as a doctor' is said to move, by label."""
    found = observed(CORPUS, refused)
    shifted = shifts(CORPUS, refused, REPORTED, found.effects, {"refusing": values}, seed=0)
    of = [v for v in judge_factors(found, {}, shifted)["asker"].values if v.value == "as a doctor"]
    return {v.label: v.moved or "not known" for v in of}


def noise(seed: int = 1) -> np.ndarray:
    return 0.2 * np.random.default_rng(seed).standard_normal(len(CORPUS))


def test_what_moves_both_is_told_from_what_moves_one() -> None:
    harmful, nothing = HARMFUL.copy(), np.zeros(len(CORPUS))
    benign_doctor = DOCTOR & ~HARMFUL
    assert moved(harmful | benign_doctor, HARMFUL + benign_doctor + noise())["benign"] == "both"
    assert moved(harmful | benign_doctor, HARMFUL + nothing + noise())["benign"] == "action"
    assert moved(harmful, HARMFUL + 0.6 * benign_doctor + noise())["benign"] == "projection"
    assert moved(harmful, HARMFUL + noise())["benign"] == "neither"


def test_the_test_of_difference_tells_like_moves_from_unlike_ones() -> None:
    refused = HARMFUL | (DOCTOR & ~HARMFUL)
    found = observed(CORPUS, refused)
    p = {}
    for name, size in (("alike", 1.0), ("unlike", 0.3)):
        values = HARMFUL + size * (DOCTOR & ~HARMFUL) + noise()
        shifted = shifts(CORPUS, refused, REPORTED, found.effects, {"refusing": values}, 0)
        at = [(effect.value, effect.label) for effect in found.effects].index(("as a doctor", "benign"))
        p[name] = shifted[at]["refusing"].p_differs_from_action
    assert p["unlike"] <= 0.001 < 0.05 < p["alike"]


def test_the_interval_of_a_difference_holds_it_as_often_as_said() -> None:
    """Groups share a level and hold both sides or one: the variance is of whole groups."""
    rng, held = np.random.default_rng(5), 0
    groups = np.repeat(np.arange(40), 3)
    for _ in range(400):
        has = rng.random(120) < np.repeat(rng.choice([0.0, 0.5, 1.0], 40), 3)
        category = np.where(np.arange(120) % 2 == 0, "a", "b")
        level = np.repeat(rng.standard_normal(40), 3)
        values = level + 0.5 * has + 0.5 * rng.standard_normal(120)
        found = difference(values, groups, MatchedRequests("none", np.arange(120), category, has))
        held += found.low <= 0.5 <= found.high
    assert 0.91 <= held / 400 <= 0.98
