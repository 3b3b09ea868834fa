"""Answers: one or many, in the order of the prompts, as the model generates them."""

from __future__ import annotations

import pandas as pd
import pytest

import refusal
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from refusal.prompts import as_prompts
from tests.refusal.conftest import TEXTS


def test_one_prompt_has_one_answer_and_a_list_has_a_list(model: refusal.Model, prompts: list[Prompt]) -> None:
    turns = [{"role": "user", "content": prompts[0].text}]

    def ask(asked: object) -> str | list[str]:
        return model.chat(asked, max_new_tokens=3)

    one = ask(prompts[0].text)
    assert isinstance(one, str)
    assert ask(prompts[0]) == ask(turns) == ask(tuple(turns)) == one
    assert ask([prompts[0].text]) == ask([prompts[0]]) == ask([turns]) == [one]
    assert ask(pd.Series([prompts[0].text], index=["a"])) == [one]
    assert ask(text for text in [prompts[0].text]) == [one]


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


def test_an_answer_has_a_token(model: refusal.Model) -> None:
    with pytest.raises(UserError, match="max_new_tokens is at least 1; got 0"):
        model.chat("tell me.", max_new_tokens=0)
