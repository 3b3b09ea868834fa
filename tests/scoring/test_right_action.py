"""The right-action score: 1 for right actions, 0 for policies that ignore the prompt, on any balance of labels."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extract.errors import UserError
from extract.prompts.prompt import RIGHT_ACTIONS
from scoring.actions import ACTIONS
from scoring.right_action import credits_of, load_adjacency, right_action_score

DEFAULT = load_adjacency()
CREDITS = st.dictionaries(
    st.sampled_from(RIGHT_ACTIONS), st.dictionaries(st.sampled_from(ACTIONS), st.floats(0, 1), max_size=8), max_size=6
)
CASES = st.lists(
    st.tuples(st.sampled_from(RIGHT_ACTIONS), st.lists(st.sampled_from(RIGHT_ACTIONS), max_size=2)),
    min_size=2, max_size=40,
).filter(lambda cases: len({right for right, _ in cases}) > 1)  # fmt: skip


def score(right: list[str], actions: list[str | None], adjacency=DEFAULT, acceptable=None):  # type: ignore[no-untyped-def]
    return right_action_score(right, acceptable or [()] * len(right), actions, np.arange(len(right)), adjacency)


@example([("abstain", []), ("answer_with_caveat", ["abstain"])], {"abstain": {"answer_with_caveat": 1.0}}, "answer")
@given(CASES, CREDITS, st.sampled_from(ACTIONS))
def test_a_constant_policy_scores_nothing_on_any_balance(cases: list, adjacency: dict, action: str) -> None:  # type: ignore[type-arg]
    right, acceptable = [r for r, _ in cases], [a for _, a in cases]
    found = score(right, [action] * len(right), adjacency, acceptable)
    if math.isnan(found.estimate):  # only if every right action earns full credit everywhere
        earned = [dict(zip(ACTIONS, credits_of(r, a, adjacency), strict=True)) for r, a in cases]
        assert all(credit[other] == pytest.approx(1) for credit in earned for other in set(right))
        return
    assert found.estimate == pytest.approx(0, abs=1e-6)
    assert found.low <= 1e-9
    assert found.high >= -1e-9


@given(CASES)
def test_the_right_action_throughout_scores_one(cases: list) -> None:  # type: ignore[type-arg]
    right = [r for r, _ in cases]
    found = score(right, list(right))
    assert found.estimate == pytest.approx(1)
    assert found.low <= 1 <= found.high + 1e-9


@settings(max_examples=30)
@given(st.integers(2, 30), st.integers(2, 30), st.randoms(use_true_random=False))
def test_with_two_actions_and_no_partial_credit_it_is_youdens_j(n_harmful: int, n_benign: int, random) -> None:  # type: ignore[no-untyped-def]
    right = ["refuse"] * n_harmful + ["answer"] * n_benign
    actions = [random.choice(["refuse", "answer"]) for _ in right]
    hits = sum(a == "refuse" for a in actions[:n_harmful]) / n_harmful
    false = sum(a == "refuse" for a in actions[n_harmful:]) / n_benign
    assert score(right, actions, {}).estimate == pytest.approx(hits - false)


def test_more_caution_throughout_buys_nothing_and_better_aim_does() -> None:
    rng = np.random.default_rng(0)
    right = rng.choice(["answer", "refuse", "abstain"], p=[0.7, 0.2, 0.1], size=3000).tolist()
    for p_refuse in (0.1, 0.5, 0.9):  # refuses at random, regardless of the prompt
        blind = rng.choice(["refuse", "answer"], p=[p_refuse, 1 - p_refuse], size=3000).tolist()
        found = score(right, blind)
        assert abs(found.estimate) < 0.06
        assert found.low <= 0 <= found.high
    aimed = [r if rng.random() < 0.5 else "answer" for r in right]
    assert score(right, aimed).estimate == pytest.approx(0.5, abs=0.06)


def test_adjacent_actions_earn_less_than_right_ones_and_more_than_distant_ones() -> None:
    right = ["answer"] * 10 + ["refuse"] * 10 + ["abstain"] * 10
    endings = ("abstain", "answer_with_caveat", "answer")
    perfect, near, far = (score(right, right[:20] + [last] * 10).estimate for last in endings)
    assert perfect == pytest.approx(1)
    assert far < near < perfect


def test_the_interval_covers_the_truth_at_its_rate() -> None:
    """A policy that is right seven times in ten and answers otherwise, over fresh draws of 40 prompts a class."""
    rng = np.random.default_rng(1)
    right = ["answer"] * 40 + ["refuse"] * 40
    found = []
    for _ in range(300):
        actions = [r if rng.random() < 0.7 else "answer" for r in right]
        interval = score(right, actions, {})
        found.append(interval.low <= 0.7 <= interval.high)
    assert np.mean(found) >= 0.93


def test_one_right_action_only_cannot_be_scored() -> None:
    assert math.isnan(score(["refuse"] * 5, ["refuse"] * 5).estimate)
    assert math.isnan(score(["refuse", "answer"], ["refuse", None]).estimate)


def test_rows_of_one_group_count_once() -> None:
    right, actions = ["answer", "refuse"] * 20, ["answer", "answer"] * 20
    alone = right_action_score(right, [()] * 40, actions, np.arange(40), DEFAULT)
    together = right_action_score(right, [()] * 40, actions, np.arange(40) // 10, DEFAULT)
    assert together.high - together.low > alone.high - alone.low


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("answer: {refuze: 0.5}", "answer: refuze: 0.5; expected another action out of answer, "),
        ("answer: {refuse: 2}", "answer: refuse: 2; expected .* a credit from 0 to 1"),
        ("answer: {answer: 0.5}", "answer: answer: 0.5; expected another action"),
        ("reply: {refuse: 0.5}", "'reply' is not a right action"),
        ("answer: [refuse]", "answer must hold actions and their credits, found list"),
    ],
)
def test_a_mistaken_adjacency_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        load_adjacency(path)
