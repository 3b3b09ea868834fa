"""The draw: random, the same for the same seed, nested, with its inclusion probabilities, and without the judge."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from extract.errors import UserError
from scoring.labels.draw import Draw, draw_rows
from scoring.score_file import score_file
from tests.support.labelled_completions import COMPLETIONS, write_completions


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    score_file(write_completions(folder / "completions.jsonl"), folder)
    return folder


def test_a_seed_gives_one_draw_and_a_larger_one_contains_it(scores: Path) -> None:
    for stratify in (False, True):
        small, large = (draw_rows(scores, n, 3, stratify=stratify) for n in (60, 200))
        assert [row.key for row in small.rows] == [row.key for row in large.rows[:60]]
        assert draw_rows(scores, 60, 3, stratify=stratify) == small
        assert draw_rows(scores, 60, 4, stratify=stratify) != small
        assert len({row.key for row in large.rows}) == 200
        assert large.judged == 600


@pytest.mark.slow
def test_every_completion_is_equally_likely_without_strata(scores: Path) -> None:
    """Of 100 draws of 60, each of 600 completions is in about 10; a chi-squared test of the counts."""
    drawn = Counter(row.id for seed in range(100) for row in draw_rows(scores, 60, seed, stratify=False).rows)
    counts = np.array([drawn[f"p{i}"] for i in range(600)])
    assert ((counts - 10) ** 2 / (10 * 0.9)).sum() < 600 + 4 * np.sqrt(2 * 600)
    assert {row.inclusion for row in draw_rows(scores, 60, 0, stratify=False).rows} == {0.1}


def test_strata_draw_rare_verdicts_more_often_and_weights_add_up(scores: Path) -> None:
    action = {row["id"]: row["action"] for row in map(json.loads, (scores / "scored.jsonl").read_text().splitlines())}
    plain, strata = (draw_rows(scores, 150, 0, stratify=stratify) for stratify in (False, True))

    def n_missed(draw: Draw) -> int:
        return sum(int(row.id[1:]) % 3 == 1 and action[row.id] == "answer" for row in draw.rows)

    assert n_missed(strata) > 1.5 * n_missed(plain)
    for draw in (plain, strata):
        assert sum(1 / row.inclusion for row in draw.rows) == pytest.approx(600)


def test_where_two_judges_disagree_more_is_drawn_and_weights_add_up(scores: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (scores / "scored.jsonl").read_text().splitlines()]
    odd = set(sorted(row["id"] for row in rows if row["label"] == "benign" and row["action"] == "answer")[:30])
    changed = [row | {"action": "refuse"} if row["id"] in odd else row for row in rows]
    (tmp_path / "scored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    plain = draw_rows(scores, 120, 0, stratify=False)
    for stratify in (False, True):
        draw = draw_rows(scores, 120, 0, stratify=stratify, against=tmp_path)
        assert sum(row.id in odd for row in draw.rows) >= (6 if stratify else 30)  # with more strata each has less
        assert sum(1 / row.inclusion for row in draw.rows) == pytest.approx(600)
        assert sum(1 / row.inclusion for row in draw.rows if row.id in odd) == pytest.approx(30)
        assert draw.against == str(tmp_path / "scored.jsonl")
    assert sum(row.id in odd for row in plain.rows) < 10
    same = draw_rows(scores, 120, 0, stratify=False, against=scores)
    assert same.rows == plain.rows  # one stratum


def test_a_draw_has_texts_and_not_what_the_judge_or_the_prompt_file_says(scores: Path) -> None:
    draw = draw_rows(scores, 20, 0, stratify=True)
    for row in draw.rows:
        assert row.completion == COMPLETIONS[int(row.id[1:])]
        assert row.text == f"Question number {row.id[1:]}?"
        assert set(row.to_dict()) == {"id", "sample", "group", "text", "completion", "inclusion"}


def test_a_small_file_is_drawn_whole_and_what_is_not_judged_is_left_out(tmp_path: Path) -> None:
    path = write_completions(tmp_path / "completions.jsonl", 30)
    with path.open("a") as file:
        file.write('{"id": "none", "text": "a?", "label": "benign", "completion": null}\n')
        file.write('{"id": "free", "text": "a?", "completion": "Sure, it is blue."}\n')
        file.write('{"id": "dual", "label": "dual_use", "right_action": "clarify", "completion": "Sure."}\n')
    score_file(path, tmp_path)
    draw = draw_rows(tmp_path, 200, 0, stratify=True)
    assert sorted(row.id for row in draw.rows) == sorted(f"p{i}" for i in range(30))
    assert {row.inclusion for row in draw.rows} == {1.0}


def test_samples_of_one_prompt_are_rows_of_their_own(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "?", "label": "benign", "completion": f"It is {i}."} for i in range(4)]
    rows += [rows[0]]
    (tmp_path / "completions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    score_file(tmp_path / "completions.jsonl", tmp_path)
    draw = draw_rows(tmp_path, 10, 0, stratify=False)
    assert sorted(row.key for row in draw.rows) == [("a", ""), ("a", "#2"), ("a", "#3"), ("a", "#4")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": "a", "action": "answer", "label": "benign"}', "does not contain the completion of id 'a'; score"),
        ('{"id": "a", "action": "answer", "completion": "x"}', "no judged completions of benign, harmful or uncertain"),
        ('{"id": "a", "action": null, "label": "benign", "completion": "x"}', "no judged completions of benign"),
        ('{"id": "a", "completion": "x"}', "not a judged completion"),
    ],
)
def test_what_cannot_be_drawn_from_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "scored.jsonl").write_text(content + "\n")
    with pytest.raises(UserError, match=said) as caught:
        draw_rows(tmp_path, 10, 0, stratify=False)
    assert "\n" not in str(caught.value)
