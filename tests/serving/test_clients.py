"""Requests as three clients send them (`openai`, LangChain, Open WebUI): what changes nothing is accepted."""

import httpx
import openai
import pytest

from tests.support.planted_dials import BENIGN, UNKNOWN
from tests.support.running_server import Running

ASK = {"role": "user", "content": BENIGN}
LANGCHAIN = {
    "stream": False, "service_tier": "auto", "frequency_penalty": 0.0, "logit_bias": {}, "logprobs": False,
    "max_completion_tokens": 20, "n": 1, "presence_penalty": 0.0, "seed": 1, "store": False, "temperature": 0.0,
    "top_p": 1.0, "tools": [], "tool_choice": "none", "parallel_tool_calls": False, "top_k": -1,
    "repetition_penalty": 1.0, "min_p": 0,
}  # fmt: skip
OPEN_WEBUI = {
    "stream": False, "max_tokens": 20, "temperature": 0.0, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0,
    "logit_bias": None, "reasoning_effort": None, "tools": None, "stream_options": {"include_usage": True},
}  # fmt: skip


def posted(served: Running, messages: list[dict[str, object]], **given: object) -> httpx.Response:
    body = {"model": "two-knobs", "messages": messages} | given
    return httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("given", [LANGCHAIN, OPEN_WEBUI], ids=["LangChain", "Open WebUI"])
def test_their_usual_fields_do_not_change_the_answer(served: Running, given: dict[str, object]) -> None:
    plain, found = posted(served, [ASK], max_tokens=20), posted(served, [ASK], **given)
    assert found.status_code == 200, found.text
    assert found.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": ""},  # an answer that was stopped
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "", "reasoning_content": "who is that?", "thinking": "who is that?"},
        {"role": "assistant", "content": [{"type": "text", "text": "", "annotations": []}]},
    ],
)
def test_an_empty_answer_in_the_history_is_a_turn_without_words(served: Running, turn: dict[str, object]) -> None:
    found = posted(served, [{"role": "user", "content": UNKNOWN}, turn, ASK])
    assert found.status_code == 200, found.text
    empty = posted(served, [{"role": "user", "content": UNKNOWN}, {"role": "assistant", "content": ""}, ASK])
    assert found.json()["choices"] == empty.json()["choices"]


def test_an_answer_can_be_sent_back_as_the_openai_client_gives_it(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="two-knobs", messages=[ASK]).choices[0].message
    for turn in (first, first.model_dump()):
        messages = [ASK, turn, {"role": "user", "content": UNKNOWN}]
        assert client.chat.completions.create(model="two-knobs", messages=messages).choices[0].message.content
