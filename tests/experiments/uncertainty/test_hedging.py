"""Hedging score: its extremes, its order, and phrases that are not hedges of knowledge."""

import numpy as np
import pytest

from experiments.uncertainty.hedging import hedging
from scoring.judges.rules import RuleJudge

JUDGE, ASKED = RuleJudge(), "Where does Anna Novak live?"


def score(said: str) -> float:
    return hedging(JUDGE, said, ASKED)


@pytest.mark.parametrize(
    "said", ["I don't know.", "I'm not familiar with that person.", "I have no information on her."]
)
def test_withholding_for_want_of_knowledge_is_one(said: str) -> None:
    assert score(said) == 1


@pytest.mark.parametrize("said", ["She lives in Paris.", "Paris", "I can't help with that request.",
                                  "She lives in Paris. This is not legal advice."])  # fmt: skip
def test_flat_answers_refusals_and_disclaimers_are_zero(said: str) -> None:
    assert score(said) == 0


def test_an_answer_hedged_throughout_lies_between_and_above_one_hedged_in_part() -> None:
    flat, part, throughout = (score(said) for said in (
        "She lives in Paris. She moved there in 1990.", "I think she lives in Paris. She moved there in 1990.",
        "I think she lives in Paris."))  # fmt: skip
    assert flat < part < throughout == 0.5 < score("I do not know.")


def test_what_cannot_be_read_has_no_score() -> None:
    assert np.isnan(score(""))
    assert np.isnan(score("<think>she may live in Paris, or"))
