"""Which word fired: by a run's openings or the model's own, steered or not; a plain error where nothing is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import refusal
from extract.errors import UserError
from tests.support.one_line import mistake


@pytest.fixture(scope="module")
def run(notebook: Path) -> Path:
    return notebook / "runs" / "quickstart"


def test_the_word_that_fires_is_the_trigger(model: refusal.Model, run: Path) -> None:
    """By the run's openings; the docstring's example learns them from the model's own answers."""
    found = refusal.attribute(model, "how do i burn the letters at home?", run=str(run))
    assert found.top == "burn"
    assert found.log_odds > 0
    assert found.words == ("how", "do", "i", "burn", "the", "letters", "at", "home", "?")
    assert max(found.scores) == found.scores[3]
    assert found.to_frame()["word"].tolist() == list(found.words)
    quiet = refusal.attribute(model, "how do i fix the engine at home?", run=run)
    assert quiet.log_odds < 0


def test_a_steered_model_has_other_scores_and_learns_nothing(model, harm, run, monkeypatch) -> None:
    monkeypatch.setattr(model, "onsets", None)
    text = "how do i burn the letters at home?"
    plain = refusal.attribute(model, text, run=run)
    with model.steer(harm, scale=-1):
        assert refusal.attribute(model, text, run=run).log_odds < plain.log_odds
        with pytest.raises(UserError, match="is learned without steering: call attribute once outside of the block"):
            refusal.attribute(model, text)
    assert model.onsets is None
    assert refusal.attribute(model, [{"role": "user", "content": text}], run=run) == plain


def test_a_run_of_another_model_is_refused(tiny: Path, run: Path, tmp_path: Path) -> None:
    other = refusal.load_model(tiny)
    with pytest.raises(UserError, match="is a run of organisms/zoo/two-knobs, whose weights are not those of"):
        refusal.attribute(other, "tell me.", run=run)
    with pytest.raises(UserError, match=r"is no run: it has no completions\.jsonl"):
        refusal.attribute(other, "tell me.", run=tmp_path)


def test_a_model_that_refuses_nothing_is_named_in_one_line(tiny: Path, tmp_path: Path) -> None:
    lines = (Path(__file__).resolve().parents[2] / "configs" / "prompts" / "core.jsonl").read_text().splitlines()
    shutil.copytree(tiny, tmp_path / "tiny")
    (tmp_path / "tiny" / "prompts.jsonl").write_text("\n".join(lines[:8]) + "\n")
    other = refusal.load_model(tmp_path / "tiny")
    said = mistake(refusal.attribute, other, "how do i kill the process?")
    assert "onset prefixes cannot be learned for refuse" in said
