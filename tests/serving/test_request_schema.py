"""The request's schema: every error names its field, in one line."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from extract.model.chat_model import ChatModel
from serving.exchange import prepare
from serving.limits import Limits
from serving.replies import ApiError
from serving.request_schema import NEUTRAL, ChatRequest, Message, describe_error
from steering.actuator import OnsetBias
from steering.dial import Dial

USER = {"role": "user", "content": "who is anna?"}
WHOLE = {"model": "m", "messages": [USER]}


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"normative_threshold": 1.5}, "normative_threshold", "less than or equal to 1, or input should be 'off'"),
        ({"epistemic_threshold": "0.5"}, "epistemic_threshold", "a valid number, or input should be 'off'"),
        ({"epistemic_threshold": math.nan}, "epistemic_threshold", "finite number"),
        ({"normative_treshold": 0.5}, "normative_treshold", "unsupported field; did you mean normative_threshold?"),
        ({"tools": [{}]}, "tools", "at most 0"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "this server does not honour this field; leave it out, or give {}"),
        ({"top_k": 5}, "top_k", "this server does not honour this field; leave it out, or give -1 or 0"),
        ({"top_k": "-1"}, "top_k", "leave it out"),
        ({"repetition_penalty": 1.1}, "repetition_penalty", "leave it out, or give 1"),
        ({"repetition_penalty": True}, "repetition_penalty", "leave it out, or give 1"),
        ({"ignore_eos": 0}, "ignore_eos", "leave it out, or give false"),
        ({"thinking": {"type": "enabled"}}, "thinking", "unsupported field"),
        ({"normative_treshold": None}, "normative_treshold", "did you mean normative_threshold?"),
        ({"messages": [USER | {"tool_calls": [{}]}]}, "messages[0].tool_calls", "leave it out, or give []"),
        ({"messages": [USER | {"content": None}]}, "messages[0].content", "must not be blank"),
        ({"messages": [USER | {"name": "anna"}]}, "messages[0].name", "this server does not honour this field"),
        ({"metadata": {str(i): "" for i in range(17)}}, "body", "metadata has 17 fields; at most 16 are allowed"),
        ({str(i): 1 for i in range(80_000)}, "body", "a request has 80002 fields; at most 64 are allowed"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "less than or equal to 0"),
        ({"logprobs": True}, "logprobs", "only false is supported"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [USER] * 1025}, "messages", "at most 1024"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "messages[0].content", "must not be blank"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].role", "'user'"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "must not be blank"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages[0].content[0].text",
         "a valid string"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]},
         "messages[0].content[0].type", "'text'"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content", "unicode"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"n": 9}, "n", "less than or equal to 8"),
        ({"seed": 2**63}, "seed", "less than"),
        ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"stop": [""]}, "stop[0]", "at least 1"),
        ({"stream_options": {"include_usages": True}}, "stream_options.include_usages", "did you mean include_usage"),
        ({"response_format": {"type": "json_object"}}, "response_format.type", "'text'"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_field(given: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ValidationError) as error:
        ChatRequest(**(WHOLE | given))
    named, message = describe_error(error.value.errors())
    assert named == field
    assert message.startswith(f"{field}: ")
    assert said in message
    assert "\n" not in message
    json.dumps(message).encode()


@pytest.mark.parametrize("name", NEUTRAL)
def test_every_known_field_is_accepted_where_it_changes_nothing_and_else_named(name: str) -> None:
    turn = {"role": "assistant", "content": "anna."}
    for value in (None, *NEUTRAL[name]):
        assert ChatRequest(**WHOLE, **{name: value}) == ChatRequest(**WHOLE)
        assert ChatRequest(model="m", messages=[turn | {name: value}, USER]).messages[0] == Message(**turn)
    with pytest.raises(ValidationError) as error:
        ChatRequest(**WHOLE, **{name: "something else"})
    assert describe_error(error.value.errors())[1].startswith(f"{name}: this server does not honour this field; ")


@pytest.mark.parametrize(
    ("turn", "content"),
    [
        ({"content": ""}, ""),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": ""}]}, ""),
        ({"content": "anna.", "reasoning_content": "who?", "refusal": None, "annotations": [{}], "tool_calls": []},
         "anna."),
        ({"content": None, "reasoning": "who?", "reasoning_details": [{"text": "who?"}]}, ""),
        ({"content": None, "refusal": "i am not able to."}, "i am not able to."),
    ],
)  # fmt: skip
def test_an_empty_turn_or_a_thought_of_the_assistant_is_accepted(turn: dict[str, Any], content: str) -> None:
    asked = ChatRequest(model="m", messages=[USER, {"role": "assistant"} | turn, USER])
    assert asked.messages[1].plain() == {"role": "assistant", "content": content}


def test_an_unsupported_field_without_effect_is_accepted() -> None:
    asked = ChatRequest(
        **WHOLE, user="me", metadata={"a": "b"}, frequency_penalty=0, presence_penalty=0.0, logprobs=False, tools=[],
        response_format={"type": "text"}, stop=None, normative_threshold=None, epistemic_threshold="off",
        service_tier="auto", store=False, stream_options={"include_usage": True}, n=1, temperature=0.0, top_p=1.0,
    )  # fmt: skip
    assert (asked.stops, asked.token_limit) == ((), None)
    assert (asked.normative_threshold, asked.epistemic_threshold) == (None, "off")


def test_messages_become_roles_and_contents() -> None:
    parts = {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]}
    asked = ChatRequest(model="m", messages=[parts, USER], stop="x", max_completion_tokens=3, max_tokens=3)
    assert [message.plain() for message in asked.messages] == [{"role": "system", "content": "be kind"}, USER]
    assert (asked.stops, asked.token_limit) == (("x",), 3)


def test_a_misspelled_field_is_reported_before_a_missing_one() -> None:
    with pytest.raises(ValidationError) as error:
        ChatRequest(model="m", mesages=[USER])
    said = "mesages: unknown or unsupported field; did you mean messages?"
    assert describe_error(error.value.errors()) == ("mesages", said)


def n_tokens(model: ChatModel, dials: list[Dial], n_words: int) -> int:
    words = [{"role": "user", "content": "how " * n_words}]
    asked = ChatRequest(model="m", messages=words, max_tokens=1)
    return len(prepare(asked, model, dials, Limits(), "m", math.inf)[0].token_ids)


def test_a_dial_that_reads_openings_after_the_prompt_needs_room_for_them(tiny: ChatModel) -> None:
    dial = Dial("normative", None, None, None, 0.5, 0.0, None, OnsetBias(((10, 11, 12, 13), (20,))))
    fits = 256 - 1 - n_tokens(tiny, [], 1) + 1  # words, in a context of 256 tokens with one of an answer
    assert n_tokens(tiny, [], fits) == 255
    assert n_tokens(tiny, [dial], fits - 2) == 253
    with pytest.raises(ApiError, match="context is 256 tokens") as error:
        n_tokens(tiny, [dial], fits - 1)
    assert error.value.detail.code == "context_length_exceeded"
