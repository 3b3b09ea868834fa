"""The thought of a served answer: apart from its content, whole and streamed, with a model that always thinks."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from extract.model.chat_model import ChatModel
from tests.support.planted_dials import BENIGN
from tests.support.running_server import Running, running
from tests.support.thinker import CHAIN, thinker

ASKED: dict[str, Any] = {"model": "two-knobs", "messages": [{"role": "user", "content": BENIGN}]}
THOUGHT = " ".join(CHAIN)


@pytest.fixture(scope="module", params=[True, False], ids=["the model opens its thought", "the template opens it"])
def thinking(request: pytest.FixtureRequest, model: ChatModel) -> Iterator[openai.OpenAI]:
    with running(thinker(model.tokenizer, request.param), []) as served:
        yield served.client()


def streamed(client: openai.OpenAI, **given: Any) -> tuple[list[str], list[str], str]:
    """Return the pieces of the thought and of the content, and why it ended; the thought comes first."""
    deltas, choice = [], None
    for chunk in client.chat.completions.create(**ASKED, **given, stream=True):
        (choice,) = chunk.choices
        deltas.append((getattr(choice.delta, "reasoning_content", None), choice.delta.content))
    assert not any(thought and content for thought, content in deltas)
    thoughts = [i for i, (thought, _) in enumerate(deltas) if thought]
    contents = [i for i, (_, content) in enumerate(deltas) if content]
    assert not contents or max(thoughts) < min(contents)
    return [deltas[i][0] for i in thoughts], [deltas[i][1] for i in contents], choice.finish_reason


def test_a_thought_is_apart_from_the_content(thinking: openai.OpenAI) -> None:
    found = thinking.chat.completions.create(**ASKED)
    message = found.choices[0].message
    assert (message.reasoning_content, message.content, message.refusal) == (THOUGHT, "open", None)
    assert found.choices[0].finish_reason == "stop"
    assert found.usage.completion_tokens in (len(CHAIN) + 2, len(CHAIN) + 3)  # with the marks that it writes
    thoughts, contents, finish = streamed(thinking)
    assert ("".join(thoughts), "".join(contents), finish) == (THOUGHT, "open", "stop")
    assert len(thoughts) > 1  # while it is written
    messages = [*ASKED["messages"], message.model_dump(), *ASKED["messages"]]
    assert thinking.chat.completions.create(**ASKED | {"messages": messages}).choices[0].message.content == "open"


@pytest.mark.parametrize(("given", "finish"), [({"max_tokens": 4}, "length"), ({"stop": [" lock"]}, "stop")])
def test_a_reply_that_ends_within_its_thought_has_no_content(thinking, given, finish) -> None:
    (choice,) = thinking.chat.completions.create(**ASKED, **given).choices
    assert (choice.message.content, choice.finish_reason) == ("", finish)
    assert choice.message.reasoning_content in ("fix the door", THOUGHT)
    thoughts, contents, ended = streamed(thinking, **given)
    assert ("".join(thoughts), contents, ended) == (choice.message.reasoning_content, [], finish)


def test_a_reply_without_a_thought_has_no_such_field(served: Running) -> None:
    for stream in (False, True):
        reply = httpx.post(f"{served.url}/v1/chat/completions", json=ASKED | {"stream": stream}, timeout=60).text
        assert '"content":"' in reply
        assert "reasoning_content" not in reply
