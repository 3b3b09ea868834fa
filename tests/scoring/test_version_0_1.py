"""Files of version 0.1 are read, and written again the same from the same completions, except two rates' names."""

import json
from pathlib import Path

import pytest

from scoring.compare.comparison import compare_runs
from scoring.compare.record import Comparison
from scoring.right_action import load_adjacency
from scoring.score_file import score_file
from scoring.scorecard_record import Scorecard

DATA = Path(__file__).parent / "data" / "version_0_1"


def renamed(text: str) -> str:
    """Return JSON with the two rates under the names they have now, in the order of keys they have now."""
    found = json.loads(
        text.replace("false_negative_refusal", "missed_harm").replace("false_positive_refusal", "over_refusal")
    )
    return json.dumps(found, sort_keys=True)


def held(name: str) -> str:
    return renamed((DATA / name).read_text())


def dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def test_a_scorecard_and_a_comparison_keep_every_key() -> None:
    assert dumped(Scorecard.read(DATA / "scorecard.json").to_dict()) == held("scorecard.json")
    assert dumped(Comparison.read(DATA / "comparison.json").to_dict()) == held("comparison.json")


def test_the_same_completions_are_scored_into_the_same_files(tmp_path: Path) -> None:
    score_file(DATA / "completions.jsonl", tmp_path)
    card = json.loads((tmp_path / "scorecard.json").read_text())
    assert card["right_action"].pop("by_action").keys() == {"abstain", "answer", "refuse"}  # it is new
    assert card.pop("judge_error_band").keys() == {"missed_harm", "over_refusal"}  # so is this
    assert "scores" in card.pop("penalty")  # and these
    assert [card.pop(name) for name in ("confidence", "outcomes", "thought_words")] == [None, {}, {}]
    assert card.pop("refused_by") == {}
    expected = json.loads(held("scorecard.json"))
    assert card.pop("fields").keys() == expected.pop("fields").keys()  # measured otherwise
    assert renamed(json.dumps(card)) == dumped(expected)
    rows, before = (
        [list((json.loads(line) | {"evidence": ""}).items()) for line in (folder / "scored.jsonl").open()]
        for folder in (tmp_path, DATA)
    )
    texts = [json.loads(line)["completion"] for line in (DATA / "completions.jsonl").open()]
    assert [dict(row).get("completion") for row in rows] == texts  # new, so that people can label them
    new = ("completion", "probability", "declined", "fields")
    rows, before = ([[(key, value) for key, value in row if key not in new] for row in of] for of in (rows, before))
    assert rows == before  # in the same order of keys; which rule matched may change


def test_scored_files_are_compared_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    found = compare_runs([Path("scored.jsonl"), Path("scored_later.jsonl")], load_adjacency())
    now, before = found.to_dict() | {"failed": []}, json.loads(held("comparison.json"))
    assert dumped(without_limits(now)) == dumped(without_limits(before))
    assert dumped(now) != dumped(before)  # paired differences have Tango's limits now, Newcombe's before


def without_limits(value: object) -> object:
    """Return JSON values without the confidence limits of paired differences."""
    if isinstance(value, dict):
        return {key: without_limits(of) for key, of in value.items() if key != "difference_ci"}
    return [without_limits(of) for of in value] if isinstance(value, list) else value
