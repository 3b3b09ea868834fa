"""Answers that have the same meaning by their wording, and answers that must not."""

import pytest

from experiments.uncertainty.meaning import Answers, ExactClusterer, normalised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris", "paris."),
        ("The Eiffel Tower", "an eiffel tower!"),
        ("I think it is Paris.", "Paris"),
        ("The answer is: 1,000 km", "1000 km"),
        ("Well, as far as I know, it's  Marie-Curie", "marie curie"),
        ("<think>London? No.</think> Paris", "Paris"),
    ],
)
def test_the_same_is_the_same(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Paris", "London"), ("3.5", "35"), ("-5", "5"), ("1990-1994", "1990"), ("not Paris", "Paris"), ("yes", "no"),
     ("it is not", "it is"), ("1,5", "15")],
)  # fmt: skip
def test_what_differs_differs(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_refusals_are_one_meaning_and_abstentions_another() -> None:
    texts = ("Paris.", "I cannot help.", "I won't do it.", "I do not know.", "no idea", "paris")
    actions = ("answer", "refuse", "refuse", "abstain", "abstain", "answer")
    assert ExactClusterer().clusters([Answers("?", texts, actions)]) == [(0, 1, 1, 2, 2, 0)]
