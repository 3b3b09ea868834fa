"""A factor moves the projection, the action, or both."""

import numpy as np

from experiments.factors.judge import judge_factors
from experiments.factors.observed import MatchedRequests, difference, observe, shifts
from tests.experiments.factors.test_observed import asked

CORPUS = asked(150)
DOCTOR = np.array([p.persona == "as a doctor" for p in CORPUS.prompts])
HARMFUL = CORPUS.harmful
REPORTED = np.arange(len(CORPUS))  # all of them are test prompts


def moved(refused: np.ndarray, values: np.ndarray) -> dict[str, str]:
    """Return what 'as a doctor' is said to move, by label."""
    found = observe(CORPUS, refused, np.arange(len(CORPUS)), seed=0)
    along = {"refusing": values}
    shifted = shifts(CORPUS, refused, REPORTED, found.effects, along, seed=0)
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
    found = observe(CORPUS, refused, np.arange(len(CORPUS)), seed=0)
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
