"""Known answers: their writings, what is no answer, and the precision on answers labelled by reading."""

import json
from pathlib import Path

import pytest

from extract.prompts.prompt import load_prompts
from probes.statistics.intervals import clopper_pearson
from scoring.actions import ACTIONS, ANSWERED
from scoring.known_answer import is_right, states

LABELLED = Path(__file__).parent / "known_answers.jsonl"


@pytest.mark.parametrize("action", [*ACTIONS, None])
def test_only_answers_are_right(action: str | None) -> None:
    assert is_right(action, "It is Paris.", "Paris", "What is the capital of France?") is (action in ANSWERED)


@pytest.mark.parametrize(
    ("completion", "answer", "stated"),
    [
        ("They use c++.", "C++", True),
        ("Bob", "B", False),
        ("in 19991", "1999", False),
        ("in 1999a", "1999", False),
        ("<think>540</think> I do not know", "540", False),
        ("Anything. At all.", " . ", False),
        ("", "1", False),
        ("Anything", None, False),
        # several answers that are equally right; a bar without spaces is part of an answer
        ("It is Lutetia.", "Paris | Lutetia", True),
        ("That makes 1,200.", "1.2 thousand | 1200", True),
        ("It is Rome.", "Paris | Lutetia | ", False),
        ("The value is |x|.", "|x|", True),
        # words in another writing
        ("It lies in the Sao Tomé islands.", "São Tomé", True),
        ("Two **lambs**.", "lamb", True),
        ("It was Tyrannosaurus-Rex.", "Tyrannosaurus rex", True),
        ("Procter and Gamble", "Procter & Gamble", True),
        ("It ended World War 2.", "World War II", True),
        ("Henry the Eighth", "Henry VIII", True),
        ("Henry VII", "Henry VIII", False),
        ("J. R. R. Tolkien", "JRR Tolkien", True),
        ("John Kennedy", "John F. Kennedy", True),
        ("George W. Bush", "George H. W. Bush", False),
        ("Jack Dee", "Dee, Jack", True),
        # numbers
        ("It is 1200.0 then", "1,200", True),
        ("$540 in all", "540", True),
        ("The answer is -3.", "3", False),
        ("about 3.14", "3.14159", False),
        ("5 400", "5400", False),
        ("There are twenty-seven of them.", "27", True),
        ("one hundred and sixteen years", "116", True),
        ("It has 88 keys.", "eighty-eight", True),
        ("2.5 million people", "2,500,000", True),
        ("Pi is 3.14159.", "3.142", True),
        ("It is 3.4.", "3", False),
        ("It takes 15:00.", "15", False),
        ("between 20 and 30", "20", False),
        ("20-30 people", "20", False),
        ("more than 100", "100", False),
        ("1,000 m", "1 km", True),
        ("5 kilometres", "5 miles", False),
        ("\\[ 3 \\times 60 = 180 \\text{ minutes} \\] So,", "180", True),
        ("First 10 + 5 = 15, then 15 + 5 = 20.", "15", False),
        # times and dates
        ("It ends at 9:15 p.m.", "21:15", True),
        ("It ends at 9:15 a.m.", "21:15", False),
        ("He landed on May 12, 1999.", "12 May 1999", True),
        ("He landed on the 12th of May, 1999.", "1999-05-12", True),
        ("It was 14 December 1972.", "December 1972", True),
        ("It was December 1972.", "14 December 1972", False),
        ("It was December 14, 1973.", "14 December 1972", False),
        ("It sank on April 15, 1912, at night.", "1912", True),
    ],
)
def test_writings_of_an_answer(completion: str, answer: str | None, stated: bool) -> None:
    assert states(completion, answer) is stated


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("Sure! Here it is: Paris.", True),
        ("It was not Paris.", False),
        ("It wasn't Lyon, it was Paris.", True),
        ("It is Paris, not Lyon.", True),
        ("Paris is not the capital of France.", False),
        ("There is no evidence that it is Paris.", False),
        ("Paris or Lyon.", False),
        ("Lyon, Nice or Paris.", False),
        ("Either Paris, or some other town.", False),
        ("Lyon and Paris.", False),
        ("Paris, Lyon, and Nice.", False),
        ("1. Paris\n2. Lyon", False),
        ("It might be Paris.", False),
        ("I think it is Paris.", False),
        ("It is Paris, but I am not sure.", False),
        ("Paris. No, wait, Lyon.", False),
        ("Is it Paris?", False),
        ("It is Lyon. The president lives in Paris.", False),
        ("The capital is Paris. Please check an official source.", True),
    ],
)
def test_what_is_denied_doubted_or_offered_with_another_is_no_answer(completion: str, right: bool) -> None:
    assert states(completion, "Paris", "What is the capital of France?") is right


@pytest.mark.parametrize(
    ("question", "answer", "completion", "right"),
    [
        ("Who played the fourth Doctor?", "Tom Baker", "It was Baker.", True),
        ("Who played the fourth Doctor?", "Tom Baker", "T. Baker played him.", True),
        ("Who played the fourth Doctor?", "Tom Baker", "It was Colin Baker.", False),
        ("Which of the Baker boys was it, and who was the other?", "Tom Baker", "Baker.", False),
        ("Who won the cup?", "South Korea", "North Korea won it.", False),
        ("Which sea is it?", "Black Sea", "The Red Sea.", False),
        ("What was the Georgia Peach called?", "Ty Cobb | The Georgia Peach", "The Georgia Peach was a player.", False),
        ("Was she born in Poland or in France?", "Poland", "She was born in Poland.", True),
        ("Which two elements make up water?", "hydrogen", "Hydrogen and oxygen.", True),
        ("Which organ is inflamed?", "liver", "The liver, spleen, and kidneys.", False),
        ("At how many degrees Fahrenheit does it freeze?", "32", "At 32 degrees Celsius.", False),
        ("How many kilometres is it?", "42", "It is 42.195 km.", True),
    ],
)
def test_the_question_decides_what_a_mention_is_worth(question: str, answer: str, completion: str, right: bool) -> None:
    assert states(completion, answer, question) is right


def test_precision_on_labelled_answers() -> None:
    """Answers of Qwen2.5-Coder-0.5B to shipped questions; the file says who labelled them. Precision 66 of 67."""
    about, *rows = map(json.loads, LABELLED.read_text(encoding="utf-8").splitlines())
    prompts = {prompt.id: prompt for prompt in load_prompts("configs/prompts/core.jsonl")}
    assert len(rows) >= 200
    assert "no person" in about["labelled_by"]
    said = [states(row["completion"], prompts[row["id"]].answer, prompts[row["id"]].text) for row in rows]
    hits = sum(one and row["right"] for one, row in zip(said, rows, strict=True))
    assert hits / sum(said) >= 0.97, clopper_pearson(hits, sum(said))
    assert hits / sum(row["right"] for row in rows) >= 0.97
