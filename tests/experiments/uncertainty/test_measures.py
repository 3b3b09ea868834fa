"""Semantic entropy against brute force, hedging scores in order, tokens of thinking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.uncertainty.observation import (
    discrete_entropy,
    entropy_threshold,
    hedging,
    thinking_tokens,
    weighted_entropy,
)
from scoring.judges.rules import RuleJudge

clusters = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(clusters)
def test_it_lies_between_zero_and_the_logarithm_of_the_samples(given: list[int]) -> None:
    found = discrete_entropy(given)
    assert 0 <= found <= np.log(len(given)) + 1e-12
    assert (found == 0) == (len(set(given)) == 1)
    assert discrete_entropy([9 - c for c in given]) == pytest.approx(found)
    assert discrete_entropy(given * 3) == pytest.approx(found)
    assert discrete_entropy(range(len(given))) == pytest.approx(np.log(len(given)))  # all apart have the most
    assert discrete_entropy([0, 0, 1, 1]) == pytest.approx(np.log(2))


@given(clusters, st.floats(-40, -1))
def test_sequences_of_one_likelihood_are_weighted_as_counted(given: list[int], nats: float) -> None:
    found = weighted_entropy(given, [nats] * len(given), list(range(len(given))))
    assert found == pytest.approx(discrete_entropy(given), abs=1e-9)


def test_a_sequence_counts_once_however_often_it_is_drawn() -> None:
    p = np.log([0.6, 0.2])
    once = weighted_entropy([0, 1], p, ["a", "b"])
    assert once == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert weighted_entropy([0, 0, 0, 1], [p[0], p[0], p[0], p[1]], ["a", "a", "a", "b"]) == pytest.approx(once)


def test_two_wordings_of_one_meaning_add_up() -> None:
    p = np.log([0.3, 0.3, 0.2])
    assert weighted_entropy([0, 0, 1], p, ["a", "b", "c"]) == pytest.approx(weighted_entropy(
        [0, 1], np.log([0.6, 0.2]), ["a", "c"]))  # fmt: skip


@given(st.lists(st.floats(0, 2.3).map(lambda x: round(x, 2)), min_size=2, max_size=25))
def test_the_split_minimises_the_squared_error_within(given: list[float]) -> None:
    values = np.array(given)
    found = entropy_threshold(values)
    if len(set(given)) == 1:
        assert found is None
        return
    assert found is not None

    def within(threshold: float) -> float:
        parts = (values[values <= threshold], values[values > threshold])
        return sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))

    assert within(found) <= min(within(v) for v in set(given) - {max(given)}) + 1e-9
    assert min(given) < found < max(given)


JUDGE, ASKED = RuleJudge(), "Where does Anna Novak live?"


HEDGING = {  # withholding for want of knowledge; hedged throughout; flat answers, refusals, disclaimers; unreadable
    1: ["I don't know.", "I'm not familiar with that person.", "I have no information on her."],
    0.5: ["I think she lives in Paris."],
    0: ["She lives in Paris.", "Paris", "I can't help with that request.",
        "She lives in Paris. This is not legal advice.", "She lives in Paris. She moved there in 1990."],
    np.nan: ["", "<think>she may live in Paris, or"],
}  # fmt: skip


@pytest.mark.parametrize(("said", "score"), [(said, score) for score, texts in HEDGING.items() for said in texts])
def test_hedging_is_scored_by_what_is_withheld(said: str, score: float) -> None:
    assert hedging(JUDGE, said, ASKED) == pytest.approx(score, abs=0, nan_ok=True)


def test_an_answer_hedged_in_part_lies_between_a_flat_one_and_one_hedged_throughout() -> None:
    assert 0 < hedging(JUDGE, "I think she lives in Paris. She moved there in 1990.", ASKED) < 0.5


@pytest.mark.parametrize(
    ("response", "prompt", "tokens"),
    [
        ("paris", "who?", 0),
        ("<think> a b c </think> paris", "who?", 3),
        ("<think> </think> paris", "who?", 0),
        ("<think> a b c d", "who?", 4),  # never closes
        ("a b </think> paris", "who? <think>", 2),  # opened by the template
        ("a b c", "who? <think>", 3),
        ("paris", "who? <think> </think>", 0),  # the template opens and closes it: thinking is off
        ("so <reasoning> a </reasoning> b", "who?", 1),
    ],
)
def test_tokens_between_the_marks(response: str, prompt: str, tokens: int) -> None:
    words = response.split(" ")

    def decode(tokens: list[int]) -> str:
        return "".join(f"{words[i]} " for i in tokens)

    assert thinking_tokens(decode, prompt, range(len(words))) == tokens
