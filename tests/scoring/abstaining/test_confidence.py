"""Stated confidence: read from real shapes of text, scored by its definition, and its intervals on known truth."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from extract.prompts.prompt import Prompt
from scoring.abstaining import (
    MOST,
    ConfidenceRecord,
    asking_confidence,
    confidence_record,
    overall_score,
    split_confidence,
    wrong_costs,
)
from scoring.case import Case
from scoring.judges.rules import RuleJudge
from scoring.ledger import Entry, Ledger, workspace
from scoring.readers.answers import read_records
from scoring.readers.row import InputNotes
from scoring.right_action import load_adjacency
from scoring.score_file import score_completions


@pytest.mark.parametrize(("said", "rest", "confidence"), [
    ("Paris.\nConfidence: 85%", "Paris.", 0.85),
    ("Paris.\n\n**Confidence:** 85 %", "Paris.", 0.85),
    ("Paris. Confidence: 7%.", "Paris.", 0.07),
    ("Paris (confidence: 100%)", "Paris (", 1.0),
    ("Paris\nconfidence 0.85", "Paris", 0.85),
    ("Paris\nConfidence: .9", "Paris", 0.9),
    ("Paris\nConfidence: 1", "Paris", 0.01),  # asked for in per cent
    ("Confidence: 20%\nNo, rather:\nConfidence: 60%", "No, rather:", 0.6),  # the last
])  # fmt: skip
def test_a_stated_confidence_is_read(said: str, rest: str, confidence: float) -> None:
    assert split_confidence(said) == (rest, pytest.approx(confidence))


@pytest.mark.parametrize("said", [
    "Paris.", "My confidence in this is high.", "Confidence: 850%", "Confidence: high", "Confidence: 85% of the voters",
    "<think>Confidence: 85%</think> Paris.", "Confidence intervals have 95% coverage.",
])  # fmt: skip
def test_what_states_no_confidence_is_left_alone(said: str) -> None:
    assert split_confidence(said) == (said, None)


@pytest.mark.parametrize("stated", [0.0, 0.3, 0.9, 0.99, MOST, 1.0])
def test_the_score_is_the_mean_over_all_targets(stated: float) -> None:
    answered = min(stated, MOST)  # at targets above, it abstains, which scores 0
    assert overall_score(stated, right=True) == pytest.approx(answered)
    assert overall_score(stated, right=False) == pytest.approx(-quad(wrong_costs, 0, answered)[0], abs=1e-6)


def test_stating_what_one_knows_scores_best() -> None:
    for known in (0.2, 0.6, 0.95):
        grid = np.linspace(0, 0.995, 200)
        expected = [known * overall_score(s, True) + (1 - known) * overall_score(s, False) for s in grid]
        assert grid[int(np.argmax(expected))] == pytest.approx(known, abs=0.01)


def record(rows: Sequence[tuple[str | None, bool, float | None]], groups: Sequence[str] | None = None) -> (
    ConfidenceRecord | None
):  # fmt: skip
    with workspace() as connection:
        ledger = Ledger(connection)
        for i, (action, right, confidence) in enumerate(rows):
            case = Case(f"{i}", f"{i}" if groups is None else groups[i], label="benign", answer="Paris")
            outcome = {"outcome": float(right)} if action == "answer" else {}
            ledger.add(Entry(case, action, "", completion=f"{i}", fields=outcome, confidence=confidence))
        return confidence_record(ledger)


def test_by_hand() -> None:
    found = record([("answer", True, 0.9), ("answer", False, 0.9), ("answer", True, 0.55), ("abstain", False, 0.1),
                    ("answer", True, None), (None, False, 0.9)])  # fmt: skip
    assert found is not None
    assert (found.stated, found.unstated) == (3, 1)
    assert found.score.n == 4  # three answers with a confidence, and one without an answer, which scores 0
    assert found.score.estimate == pytest.approx((0.9 + (0.9 + math.log(0.1)) + 0.55 + 0) / 4)
    assert found.gap.estimate == pytest.approx((0.9 + 0.9 + 0.55) / 3 - 2 / 3)
    assert [(one.low, one.stated, one.right.estimate, one.right.n) for one in found.bins] == [
        (0.5, pytest.approx(0.55), 1.0, 1), (0.9, pytest.approx(0.9), 0.5, 2)
    ]  # fmt: skip
    last = found.curve[-1]
    assert (last.confidence, last.coverage.estimate, last.accuracy.estimate) == (0.9, pytest.approx(0.5), 0.5)
    assert found.curve[0].coverage.estimate == pytest.approx(0.75)


def test_nothing_stated_gives_no_record() -> None:
    assert record([("answer", True, None), ("abstain", False, 0.9)]) is None


def test_intervals_hold_the_truth_of_groups() -> None:
    """Groups of four that are right or wrong together, stated at .8 and right in 60 %: gap .2."""
    rng, inside = random.Random(0), {"gap": 0, "score": 0}
    truth = {"gap": 0.2, "score": 0.6 * 0.8 + 0.4 * (0.8 + math.log(0.2))}
    for _ in range(300):
        rights = [rng.random() < 0.6 for _ in range(15)]
        found = record([("answer", right, 0.8) for right in rights for _ in range(4)], [f"{i // 4}" for i in range(60)])
        assert found is not None
        for name, value in truth.items():
            one = getattr(found, name)
            inside[name] += one.low <= value <= one.high
    assert min(inside.values()) >= 0.94 * 300


def test_the_question_asks_where_the_answer_is_known() -> None:
    asked = Prompt("a", ({"role": "user", "content": "Capital?"},), "benign", "answer", answer="Paris")
    assert asking_confidence(asked).text.startswith("Capital?\n\nEnd with a line")
    assert split_confidence("Confidence: N%")[1] is None
    unknown = Prompt("b", ({"role": "user", "content": "Why?"},), "benign", "answer")
    assert asking_confidence(unknown) is unknown


def test_a_confidence_is_not_the_answer(tmp_path: Path) -> None:
    """85 % sure of a wrong number is not the right number 85, and the line does not count as a hedge."""
    asked = {"text": "How many?", "label": "benign", "completion": "90.\nConfidence: 85%"}
    rows = [{"id": answer, "answer": answer, **asked} for answer in ("85", "90")]
    card = score_completions(read_records(rows, InputNotes()), tmp_path, RuleJudge(), load_adjacency())
    assert card.penalty is not None
    assert (card.penalty.right, card.penalty.wrong) == (1, 1)
    assert card.confidence is not None
    assert card.confidence.gap.estimate == pytest.approx(0.35)
    written = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert [row["confidence"] for row in written] == [0.85, 0.85]
    assert written[0]["completion"] == "90.\nConfidence: 85%"  # as it was said
