"""Dials on a model's answers: the readings of the command line, thresholds for a block, and nothing left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

import refusal
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from refusal.prompts import as_prompts
from steering.conversation import generate_once
from steering.dial_file import load_dials, save_dials
from tests.refusal.conftest import TEXTS


@pytest.fixture(scope="module")
def dials(notebook: Path) -> refusal.Dials:
    return refusal.load_dials(notebook / "runs" / "quickstart")


def test_readings_are_those_of_one_off_generation(model: refusal.Model, dials: refusal.Dials, notebook: Path) -> None:
    given = {"normative": 0.3}
    raw = load_dials(notebook / "runs" / "quickstart" / "dials.safetensors", model.fingerprint())
    expected = generate_once(model, TEXTS, raw, given, 8)
    with dials.attach(model, normative=0.3) as attached:
        answers = model.chat(TEXTS, max_new_tokens=8)
    assert attached is dials
    assert answers == [one.completion for one in expected]
    for (text, kind), row in dials.readings.set_index(["prompt", "dial"]).iterrows():
        one = expected[TEXTS.index(text)]
        assert row["probability"] == pytest.approx(one.readings[kind].probability, abs=1e-9)
        assert (row["threshold"], row["gate"]) == (one.readings[kind].threshold, one.readings[kind].gate)
    assert dials.readings["threshold"][dials.readings["dial"] == "normative"].unique().tolist() == [0.3]


def test_thresholds_last_for_the_block(model: refusal.Model, dials: refusal.Dials) -> None:
    own = {dial.kind: dial.threshold for dial in dials.dials}
    for given in ({"normative": 0.0}, {"epistemic": 1.0}, {}):
        with dials.attach(model, **given):
            model.chat(TEXTS[0], max_new_tokens=2)
        read = dials.readings.set_index("dial")["threshold"].to_dict()
        assert read == pytest.approx(own | given)
    with dials.attach(model, normative=0.0):
        model.chat(TEXTS[0], max_new_tokens=2)
    read = dials.readings.set_index("dial")
    assert read["gate"].to_dict() == {"normative": "decline", "epistemic": "leave"}
    assert read["overruled"].to_dict() == {"normative": False, "epistemic": True}


def test_readings_of_many_prompts_are_in_their_order(model, dials, prompts) -> None:
    with dials.attach(model):
        model.chat(prompts[:40], max_new_tokens=2, progress=False)
        every = dials.readings
        model.chat(prompts[37], max_new_tokens=2)
    assert every["prompt"].tolist() == [prompt.text for prompt in prompts[:40] for _ in range(2)]
    alone, same = dials.readings, every[every["prompt"] == prompts[37].text].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, same, atol=1e-5)


def test_nothing_acts_outside_the_block(model: refusal.Model, dials: refusal.Dials) -> None:
    plain = model.chat(TEXTS, max_new_tokens=8)
    with dials.attach(model, normative=0.0):
        assert model.chat(TEXTS, max_new_tokens=8) != plain
    with pytest.raises(KeyError), dials.attach(model):
        raise KeyError
    assert model.attached is None
    assert model.edits == ()
    assert model.chat(TEXTS, max_new_tokens=8) == plain


def test_steering_and_dials_may_be_nested_either_way(model, dials, harm) -> None:
    with dials.attach(model), model.steer(harm, layers=2, scale=0.5):
        inside = model.chat(TEXTS, max_new_tokens=4)
        read = dials.readings
    with model.steer(harm, layers=2, scale=0.5), dials.attach(model):
        assert model.chat(TEXTS, max_new_tokens=4) == inside
        pd.testing.assert_frame_equal(dials.readings, read)
    with dials.attach(model):
        model.chat(TEXTS, max_new_tokens=4)
        assert not dials.readings.equals(read)  # the dials read the steered stream


def test_dials_are_attached_once(model: refusal.Model, dials: refusal.Dials, tiny: Path) -> None:
    with dials.attach(model):
        with pytest.raises(UserError, match=r"Dials\(.* are attached already; leave that block first"):
            dials.attach(model).__enter__()
        with pytest.raises(UserError, match="are attached to another model"):
            dials.attach(refusal.load_model(tiny)).__enter__()
        assert model.attached is dials
    with pytest.raises(UserError, match="was made for other weights"):
        dials.attach(refusal.load_model(tiny)).__enter__()


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), "0.3"])
def test_a_threshold_is_a_probability(model: refusal.Model, dials: refusal.Dials, value: float) -> None:
    with pytest.raises(UserError, match="a threshold is a probability, from 0 to 1; got normative="):
        dials.attach(model, normative=value).__enter__()
    assert model.attached is None


def test_an_absent_dial_and_a_file_that_is_none_are_named(model, dials, notebook, tmp_path) -> None:
    [normative] = [dial for dial in dials.dials if dial.kind == "normative"]
    save_dials([normative], tmp_path / "one.safetensors", model.fingerprint())
    one = refusal.load_dials(str(tmp_path / "one.safetensors"))
    with pytest.raises(UserError, match="holds no epistemic dial; leave epistemic= out"):
        one.attach(model, epistemic=0.5).__enter__()
    with pytest.raises(UserError, match=r"is a directory without dials\.safetensors"):
        refusal.load_dials(tmp_path)
    shutil.copy(notebook / "runs/quickstart/directions.safetensors", tmp_path / "dials.safetensors")
    with pytest.raises(UserError, match="is not a dials file"):
        refusal.load_dials(tmp_path)
    assert one.readings.empty
    assert list(one.readings)[:2] == ["prompt", "dial"]


def test_one_prompt_has_one_answer_and_a_list_has_a_list_of_at_least_a_token(model, prompts) -> None:
    turns = [{"role": "user", "content": prompts[0].text}]

    def ask(asked: object) -> str | list[str]:
        return model.chat(asked, max_new_tokens=3)

    one = ask(prompts[0].text)
    assert isinstance(one, str)
    assert ask(prompts[0]) == ask(turns) == ask(tuple(turns)) == one
    assert ask([prompts[0].text]) == ask([prompts[0]]) == ask([turns]) == [one]
    assert ask(pd.Series([prompts[0].text], index=["a"])) == [one]
    assert ask(text for text in [prompts[0].text]) == [one]
    with pytest.raises(UserError, match="max_new_tokens is at least 1; got 0"):
        model.chat("tell me.", max_new_tokens=0)


def test_a_conversation_is_read_as_a_whole(model: refusal.Model) -> None:
    before = [{"role": "user", "content": TEXTS[1]}, {"role": "assistant", "content": "i am not able to help."}]
    turns = [*before, {"role": "user", "content": TEXTS[0]}]
    row = render(model.tokenizer, as_prompts([turns])[0])
    assert "not able to help" in row.text
    assert model.chat(turns, max_new_tokens=8) == model.decode(model.generate(model.batch([row]), 8)[0])


def test_many_answers_come_in_the_order_of_the_prompts(model: refusal.Model, prompts: list[Prompt]) -> None:
    """More than a batch, of unlike lengths: the same as each alone, and as generated without the door."""
    asked = prompts[:40]
    answers = model.chat(asked, max_new_tokens=6, progress=False)
    rows = [render(model.tokenizer, prompt) for prompt in asked]
    once = model.generate(model.batch(rows), 6)
    assert answers == [model.decode(tokens) for tokens in once]
    assert len(set(answers)) > 5
    assert [model.chat(prompt, max_new_tokens=6) for prompt in asked[::13]] == answers[::13]
