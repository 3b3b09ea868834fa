"""Readings of every token over HTTP: the probe on the model's own hidden states, only where they are asked for."""

import httpx
import numpy as np
import openai
import pytest
import torch
from scipy.special import expit

from extract.chat.render import render, token_texts
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from serving import engine
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN, log_odds_by_hand
from tests.support.running_server import running

pytestmark = pytest.mark.slow

ASKED = {"token_readings": True}


def body(text: str, **given: object) -> dict[str, object]:
    return {"model": "two-knobs", "messages": [{"role": "user", "content": text}]} | given


@pytest.mark.parametrize("text", [BENIGN, STRIKE, UNKNOWN])
@pytest.mark.parametrize("thresholds", [{}, {"normative_threshold": 0.0}, {"epistemic_threshold": "off"}])
def test_every_token_of_prompt_and_answer_reads_the_probe(client, reference, dials, text, thresholds) -> None:
    (choice,) = client.chat.completions.create(**body(text), extra_body=ASKED | thresholds).choices
    read = choice.token_readings
    row = render(reference.tokenizer, Prompt("p", ({"role": "user", "content": text},), "benign", "answer"))
    answer = reference.tokenizer(" " + choice.message.content, add_special_tokens=False)["input_ids"]
    ids, first = [*row.token_ids, *answer], row.instruction.start
    assert [token["token"] for token in read] == token_texts(reference.tokenizer, ids[first:])
    parts = ["words"] * len(row.instruction) + ["template"] * (len(row.token_ids) - row.instruction.stop)
    assert [token["part"] for token in read] == parts + ["answer"] * len(answer)
    for dial in dials:
        found = [token["log_odds"][dial.kind] for token in read]
        np.testing.assert_allclose(found, log_odds_by_hand(reference, dial, ids)[first:], atol=1e-3)
        (own,) = [i for i, token in enumerate(read) if dial.kind in token["read_by"]]
        assert own == len(row.token_ids) - 1 - first
        assert expit(found[own]) == pytest.approx(choice.dials[dial.kind]["probability"], abs=1e-4)


def test_who_does_not_ask_gets_none_and_no_pass_is_made(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "read_tokens", lambda *_: pytest.fail("it was read"))
    for given in ({}, {"token_readings": False}, {"token_readings": None}):
        (choice,) = client.chat.completions.create(**body(BENIGN), extra_body=given).choices
        assert choice.token_readings is None


def test_the_last_piece_of_a_stream_has_them_and_each_of_several_answers_its_own(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**body(UNKNOWN), extra_body=ASKED).choices[0]
    chunks = list(client.chat.completions.create(**body(UNKNOWN), stream=True, extra_body=ASKED))
    assert [chunk.choices[0].token_readings is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    last = chunks[-1].choices[0].token_readings
    assert [token["token"] for token in last] == [token["token"] for token in whole.token_readings]
    given = {"n": 3, "temperature": 2.0, "seed": 7}
    for choice in client.chat.completions.create(**body(UNKNOWN), **given, extra_body=ASKED).choices:
        said = "".join(token["token"] for token in choice.token_readings if token["part"] == "answer")
        assert said.strip() == choice.message.content


def test_later_turns_read_from_the_last_turn_on(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": UNKNOWN}, {"role": "assistant", "content": "i do not know."},
                {"role": "user", "content": BENIGN}]  # fmt: skip
    (choice,) = client.chat.completions.create(model="two-knobs", messages=messages, extra_body=ASKED).choices
    assert choice.token_readings[0]["token"].strip() == BENIGN.split()[0]


def test_without_dials_it_is_an_error_that_names_the_field(model: ChatModel) -> None:
    with running(model, []) as plain:
        reply = httpx.post(f"{plain.url}/v1/chat/completions", json=body(BENIGN) | ASKED)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "token_readings"
        assert reply.json()["error"]["message"] == "token_readings: no dial of this server reads tokens"


@pytest.mark.parametrize(("error", "status"), [(torch.OutOfMemoryError("out"), 503), (ValueError("broken"), 500)])
def test_a_failed_reading_fails_its_request_alone(served, client, monkeypatch, error, status) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(engine, "read_tokens", fail)
        reply = httpx.post(f"{served.url}/v1/chat/completions", json=body(BENIGN) | ASKED, timeout=20)
        assert reply.status_code == status
    assert client.chat.completions.create(**body(BENIGN), extra_body=ASKED).choices[0].token_readings
