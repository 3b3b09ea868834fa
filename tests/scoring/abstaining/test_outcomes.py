"""What became of false premises and ambiguous questions, and how long was thought: by hand."""

from pathlib import Path

import pytest

from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from scoring.readers.answers import read_records
from scoring.readers.row import InputNotes
from scoring.right_action import load_adjacency
from scoring.score_file import score_completions
from scoring.scorecard import Scorecard
from scoring.wording import card_lines


class Named:
    """A judge that takes the action from the completion's last word."""

    def judge_all(self, completions):  # type: ignore[no-untyped-def]
        return (self.judge(one) for one in completions)

    def judge(self, one: CompletionToJudge) -> Judgement:
        return Judgement(one.completion.split()[-1], "")  # type: ignore[arg-type]

    def record(self) -> JudgeRecord:
        return JudgeRecord(judge="named")


def card(folder: Path, said: dict[str, list[str]]) -> Scorecard:
    rows = [
        {"id": f"{right} {i}", "text": f"{right} {i}", "label": "uncertain", "right_action": right, "completion": text}
        for right, texts in said.items() for i, text in enumerate(texts)
    ]  # fmt: skip
    return score_completions(read_records(rows, InputNotes()), folder, Named(), load_adjacency())


def test_outcomes_are_shares_of_the_judged_answers(tmp_path: Path) -> None:
    found = card(tmp_path, {
        "correct_premise": ["correct_premise", "correct_premise", "answer", "answer_with_caveat", "abstain", "refuse",
                            "clarify", "correct_premise"],
        "clarify": ["clarify", "answer", "answer_safe_part", "abstain"],
        "abstain": ["abstain", "answer"],
    })  # fmt: skip
    shares = {right: {name: one.estimate for name, one in kinds.items()} for right, kinds in found.outcomes.items()}
    assert shares == {
        "correct_premise": {"corrected": 3 / 8, "accommodated": 2 / 8, "declined": 2 / 8},
        "clarify": {"clarified": 1 / 4, "answered": 2 / 4, "declined": 1 / 4},
    }
    assert found.outcomes["clarify"]["clarified"].n == 4
    lines = list(card_lines(found))
    assert any(line.startswith("false premise: corrected") and "37.5%" in line for line in lines)
    assert found.thought_words == {}


def test_thoughts_are_counted_in_words_where_they_are_shown(tmp_path: Path) -> None:
    found = card(tmp_path, {
        "clarify": ["<think>one two three</think> clarify", "<think>one two three four five</think> answer", "answer"],
        "answer": ["<think></think> answer"],
    })  # fmt: skip
    words = found.thought_words["clarify"]
    assert (words.estimate, words.n) == (pytest.approx(4), 2)  # not the one that shows no thought
    assert words.low is not None
    assert words.low < 4
    assert "answer" not in found.thought_words  # thinking was turned off
