"""Scores in which a wrong answer costs: by hand, against their definition, and their intervals on known truth."""

import math
import random
from collections.abc import Sequence

import pytest

from scoring.abstaining import TARGETS, PenaltyRecord, penalty_record, wrong_costs
from scoring.case import Case
from scoring.fields import measure, states
from scoring.ledger import Entry, Ledger, workspace

RIGHT, WRONG, NONE = ("answer", "It is Paris."), ("answer", "It is Rome."), ("abstain", "I do not know.")


def record(said: Sequence[tuple[str | None, str]], groups: Sequence[str] | None = None, answer: str | None = "Paris",
           targets: Sequence[float] = TARGETS) -> PenaltyRecord | None:  # fmt: skip
    with workspace() as connection:
        ledger = Ledger(connection)
        for i, (action, text) in enumerate(said):
            case = Case(f"{i}", f"{i}" if groups is None else groups[i], label="benign", answer=answer)
            ledger.add(Entry(case, action, "", completion=text, fields=dict(measure(case, action, text))))
        return penalty_record(ledger, targets)


def test_right_wrong_and_missing_answers_are_three_things() -> None:
    found = record([RIGHT] * 5 + [WRONG] * 3 + [NONE, ("refuse", "No."), ("clarify", "Which one?")])
    assert found is not None
    assert (found.right, found.wrong, found.none) == (5, 3, 3)
    assert found.coverage.estimate == pytest.approx(8 / 11)
    assert found.accuracy.estimate == pytest.approx(5 / 8)
    assert found.accuracy.n == 8
    for target, cost in (("0.5", 1), ("0.75", 3), ("0.9", 9)):
        assert found.scores[target].estimate == pytest.approx((5 - 3 * cost) / 11)
        assert found.scores[target].low < found.scores[target].estimate < found.scores[target].high  # type: ignore[operator]


def test_answering_pays_exactly_above_the_target() -> None:
    for target in TARGETS:
        assert target * 1 - (1 - target) * wrong_costs(target) == pytest.approx(0)  # right with probability t: as none
    for wrong in (1.0, -0.1, 2):
        with pytest.raises(ValueError, match="from 0 to below 1"):
            wrong_costs(wrong)


def test_always_abstaining_scores_zero_and_perfection_one() -> None:
    for said, score in ((NONE, 0.0), (RIGHT, 1.0)):
        found = record([said] * 20)
        assert found is not None
        assert all(one.estimate == pytest.approx(score) for one in found.scores.values())
    silent = record([NONE] * 4)
    assert silent is not None
    assert (silent.accuracy.known, silent.accuracy.n) == (False, 0)


def test_what_has_no_known_answer_or_no_judgement_does_not_count() -> None:
    assert record([RIGHT, NONE], answer=None) is None
    found = record([RIGHT, (None, "It is Paris."), NONE])
    assert found is not None
    assert (found.right, found.wrong, found.none) == (1, 0, 1)


@pytest.mark.parametrize("size", [1, 4])
def test_the_interval_covers_the_mean_also_where_groups_answer_alike(size: int) -> None:
    rng, covered, draws = random.Random(size), 0, 300
    for _ in range(draws):
        said: list[tuple[str, str]] = []
        for _ in range(60 // size):
            said += [rng.choices([RIGHT, WRONG, NONE], [0.5, 0.2, 0.3])[0]] * size
        found = record(said, [f"{i // size}" for i in range(len(said))], targets=(0.75,))
        assert found is not None
        score = found.scores["0.75"]
        covered += bool(score.low <= 0.5 - 0.2 * 3 <= score.high)  # type: ignore[operator]
    assert covered >= 0.95 * draws - 3 * math.sqrt(0.95 * 0.05 * draws)


@pytest.mark.parametrize(
    ("completion", "answer", "stated"),
    [
        ("So 1,200 metres.", "1200", True),
        ("It is 1200.0 then", "1,200", True),
        ("$540 in all", "540", True),
        ("The answer is -3.", "3", True),  # "3" stands there as a word
        ("The answer is 33.", "3", False),
        ("about 3.14", "3.14159", False),
        ("in 1999a", "1999", False),
        ("5 400", "5400", False),
        ("B", "B", True),
        ("Bob", "B", False),
        ("<think>540</think> I do not know", "540", False),
        ("", "1", False),
    ],
)
def test_numbers_are_the_same_in_another_writing(completion: str, answer: str, stated: bool) -> None:
    assert states(completion, answer) is stated
