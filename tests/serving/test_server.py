"""The server over HTTP: the openai client, raw requests, many clients at once, clients that disconnect."""

import asyncio
import gc
import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import openai
import pytest

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from serving import app
from serving.app import Address, create_app
from serving.choice import Choice
from serving.engine import Engine
from serving.exchange import ServedModel
from serving.limits import Limits
from steering.conversation import generate_once
from steering.dial import Dial
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN
from tests.support.running_server import Running, held, running, slowed, until

pytestmark = pytest.mark.slow

COMPLETIONS = "/v1/chat/completions"


def asked(text: str = BENIGN, **given: object) -> dict[str, object]:
    return {"model": "two-knobs", "messages": [{"role": "user", "content": text}]} | given


@pytest.mark.parametrize("text", [BENIGN, STRIKE, UNKNOWN])
def test_an_answer_is_the_one_of_generate_with_what_the_dials_did(client, reference, dials, text) -> None:
    for thresholds in ({}, {"normative": 0.0}, {"normative": 1.0, "epistemic": 0.0}):
        expected = generate_once(reference, [text], dials, thresholds, 24)[0]
        body = {f"{kind}_threshold": threshold for kind, threshold in thresholds.items()}
        found = client.chat.completions.create(**asked(text), extra_body=body)
        (choice,) = found.choices
        assert choice.message.content == expected.completion
        assert (choice.message.role, choice.finish_reason, found.model) == ("assistant", "stop", "two-knobs")
        assert {kind: dial["gate"] for kind, dial in choice.dials.items()} == {
            kind: one.gate for kind, one in expected.readings.items()
        }
        for kind, dial in choice.dials.items():
            assert dial["probability"] == pytest.approx(expected.readings[kind].probability, abs=1e-5)
            assert dial["threshold"] == expected.readings[kind].threshold
        assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
        assert found.usage.completion_tokens > 3


def test_the_conversation_before_is_read(client: openai.OpenAI) -> None:
    turns = [{"role": "user", "content": UNKNOWN}, {"role": "assistant", "content": "i am not able to say."},
             {"role": "user", "content": [{"type": "text", "text": BENIGN}]}]  # fmt: skip
    found, alone = (client.chat.completions.create(**asked() | given) for given in ({"messages": turns}, {}))
    assert found.usage.prompt_tokens > alone.usage.prompt_tokens
    assert found.choices[0].dials != alone.choices[0].dials


def test_a_dial_that_is_off_leaves_the_model_alone(client: openai.OpenAI, reference: ChatModel) -> None:
    off = {"normative_threshold": "off", "epistemic_threshold": "off"}
    (choice,) = client.chat.completions.create(**asked(STRIKE), extra_body=off).choices
    assert choice.message.content == generate_once(reference, [STRIKE], [], {}, 24)[0].completion
    assert [(dial["gate"], dial["threshold"]) for dial in choice.dials.values()] == [("leave", None)] * 2
    assert all(0 <= dial["probability"] <= 1 for dial in choice.dials.values())


def test_a_stream_is_the_answer_in_pieces(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(UNKNOWN))
    chunks = list(client.chat.completions.create(**asked(UNKNOWN), stream=True, stream_options={"include_usage": True}))
    *pieces, last, with_usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == whole.choices[0].message.content
    assert len(pieces) > 4
    assert pieces[0].choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == "stop"
    assert pieces[0].choices[0].dials == last.choices[0].dials
    assert pieces[0].choices[0].dials.keys() == {"normative", "epistemic"}
    for kind, dial in pieces[0].choices[0].dials.items():
        assert dial["probability"] == pytest.approx(whole.choices[0].dials[kind]["probability"], abs=1e-5)
    assert with_usage.choices == []
    assert with_usage.usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1
    plain = list(client.chat.completions.create(**asked(UNKNOWN), stream=True))
    assert len(plain) == len(chunks) - 1


def test_several_choices_differ_by_their_seeds_and_come_again(client: openai.OpenAI) -> None:
    given = {"n": 4, "temperature": 2.0, "seed": 7, "extra_body": {"normative_threshold": "off"}}
    first, again = (client.chat.completions.create(**asked(), **given) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert len(set(texts)) > 1
    pieces: dict[int, str] = {}
    for chunk in client.chat.completions.create(**asked(), **given, stream=True):
        (choice,) = chunk.choices
        pieces[choice.index] = pieces.get(choice.index, "") + (choice.delta.content or "")
    assert [pieces[i] for i in range(4)] == texts
    greedy = client.chat.completions.create(**asked(), n=2)
    assert len({choice.message.content for choice in greedy.choices}) == 1
    alone = client.chat.completions.create(**asked())
    assert greedy.usage.completion_tokens == 2 * alone.usage.completion_tokens
    likeliest = client.chat.completions.create(**asked(), **(given | {"n": 1, "top_p": 1e-6, "extra_body": {}}))
    assert likeliest.choices[0].message.content == alone.choices[0].message.content


def test_limits_and_stops_of_a_request(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked()).choices[0].message.content
    for name in ("max_tokens", "max_completion_tokens"):
        found = client.chat.completions.create(**asked(), **{name: 2})
        assert found.choices[0].finish_reason == "length"
        assert found.usage.completion_tokens == 2
        assert whole.startswith(found.choices[0].message.content)
    stopped = client.chat.completions.create(**asked(), stop=[" with"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (whole.split(" with")[0], "stop")


def test_models_and_health(served: Running, client: openai.OpenAI, dials: list[Dial]) -> None:
    (card,) = client.models.list().data
    assert card.id == "two-knobs"
    at = {"site": "resid_post", "layer": dials[0].read.layer, "position": "post_last"}
    said = {"threshold": 0.5, "band": 0.0, "read": at, "category_thresholds": {}, "answer_limit": None}
    assert card.dials == {"normative": said, "epistemic": said}
    assert client.models.retrieve("two-knobs").id == "two-knobs"
    with pytest.raises(openai.NotFoundError, match="unknown model 'other'; this server has"):
        client.models.retrieve("other")
    index = httpx.get(served.url)
    assert index.status_code == 200
    assert index.json()["model"] == "two-knobs"
    for endpoint in index.json()["endpoints"]:
        method, path = endpoint.split()
        assert httpx.request(method, served.url + path).status_code in (200, 400)
    health = {"status": "ok", "model": "two-knobs", "waiting": 0, "decoding": 0}
    assert httpx.get(f"{served.url}/health").json() == health


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0].role", "must have the role user"),
        ({"messages": [{"role": "user", "content": "how " * 600}]}, "messages", "context is 512 tokens"),
        ({"max_tokens": 513}, "max_tokens", "more than this server's limit of 512"),
        ({"max_completion_tokens": 500}, "max_completion_tokens", "so at most 499 are left"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "differs from max_completion_tokens"),
        ({"tempratur": 1}, "tempratur", "did you mean temperature?"),
    ],
)
def test_a_mistake_is_400_with_its_field(client, given, param, said) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(**asked(), extra_body=given)
    assert error.value.param == param
    assert said in error.value.body["message"]
    assert error.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, "body"), (b"", 400, "body"), (b"[]", 400, "body"), (b"null", 400, "body"),
        (b"\xff\xfe", 400, "body"), (b"[" * 100_000, 400, "body"), (b'{"seed": ' + b"9" * 5000 + b"}", 400, "body"),
        (json.dumps(asked("\ud800")).encode(), 400, "messages[0].content"),
        (json.dumps(asked(temperature=math.nan)).encode(), 400, "temperature"),
        (json.dumps(asked(temperature=math.inf)).encode(), 400, "temperature"),
        (json.dumps(asked("a" * 2**20)).encode(), 413, "body"),
        (json.dumps(asked(**{"\ud800": 1})).encode(), 400, "body"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_an_error(served: Running, body: bytes, status: int, param: str) -> None:
    found = httpx.post(served.url + COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert found.status_code == status
    assert found.json()["error"]["param"] == param
    assert "\n" not in found.json()["error"]["message"]


def test_a_long_message_within_the_body_s_limit_is_refused_soon(served: Running) -> None:
    started = time.monotonic()
    found = httpx.post(served.url + COMPLETIONS, json=asked("how do " * 140_000), timeout=30)
    assert (found.status_code, found.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert time.monotonic() - started < 20


def test_other_models_paths_and_methods(served: Running, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "hi"}])
    assert (error.value.param, error.value.code) == ("model", "model_not_found")
    for path, status in (("/nowhere", 404), (COMPLETIONS, 405)):
        found = httpx.get(served.url + path)
        assert (found.status_code, list(found.json())) == (status, ["error"])


def test_without_dials_there_is_no_threshold_to_give(model: ChatModel) -> None:
    with running(model, []) as served:
        found = served.client().chat.completions.create(**asked())
        assert found.choices[0].dials == {}
        with pytest.raises(openai.BadRequestError, match="this server has no normative dial"):
            served.client().chat.completions.create(**asked(), extra_body={"normative_threshold": 0.5})


def test_a_key_is_asked_for_everywhere_but_at_health(model: ChatModel, dials: list[Dial]) -> None:
    with running(model, dials, api_key="sesame") as served:
        assert served.client("sesame").chat.completions.create(**asked()).choices
        for key in ("wrong", "sesam", "sesame1"):
            with pytest.raises(openai.AuthenticationError):
                served.client(key).chat.completions.create(**asked())
        with pytest.raises(openai.AuthenticationError):
            served.client("wrong").models.list()
        assert httpx.post(served.url + COMPLETIONS, json=asked()).status_code == 401
        assert httpx.get(f"{served.url}/health").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_others_may_reach_it_only_with_a_key(host: str) -> None:
    with pytest.raises(UserError, match=f"other machines can reach {host}: set an API key in REFUSAL_API_KEY"):
        Address(host, 8000)
    assert "secret" not in repr(Address(host, 8000, "secret"))
    for loopback in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        assert Address(loopback, 8000).is_loopback
    with pytest.raises(UserError, match="the API key is empty"):
        Address("127.0.0.1", 8000, " ")
    for unsendable in ("schlüssel", "two words", "line\n"):
        with pytest.raises(UserError, match="not allowed in a header"):
            Address("127.0.0.1", 8000, unsendable)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_loopback_answers_to_names_of_this_machine_only(model: ChatModel, host: str) -> None:
    with running(model, [], host=host) as served:
        assert served.client().models.list().data
        for name, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("example.org", 400)):
            assert httpx.get(f"{served.url}/health", headers={"Host": name}).status_code == status


def test_overload_is_429_at_once(model: ChatModel, dials: list[Dial]) -> None:
    with model.editing([slowed(model, 0.05)]), running(model, dials, max_batch=2, max_queue=2) as served:
        client, codes = served.client(), set()

        def ask(_: int) -> str | float:
            started = time.monotonic()
            try:
                return client.chat.completions.create(**asked()).choices[0].message.content
            except openai.RateLimitError as error:
                codes.add((error.code, error.response.headers["retry-after"]))
                return time.monotonic() - started

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(ask, range(16)))
    refused = [one for one in found if isinstance(one, float)]
    answered = {one for one in found if isinstance(one, str)}
    assert len(refused) >= 16 - 4 - 2
    assert len(answered) == 1
    assert codes == {("queue_full", "1")}
    assert max(refused) < 1.0  # one answer takes longer than that


def test_more_answers_than_the_queue_ever_holds_are_refused_for_good(model: ChatModel) -> None:
    with running(model, [], max_queue=2) as served:
        with pytest.raises(openai.BadRequestError, match="more than this server's queue of 2 can hold") as error:
            served.client().chat.completions.create(**asked(), n=3)
        assert error.value.param == "n"
        assert len(served.client().chat.completions.create(**asked(), n=2).choices) == 2


def test_a_request_that_waits_too_long_is_429(model: ChatModel, dials: list[Dial]) -> None:
    with held(model, after_prompts=True) as go, running(model, dials, Limits(seconds=2), max_batch=1) as served:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: served.client().chat.completions.create(**asked()))
            until(lambda: served.engine.decoding == 1)
            with pytest.raises(openai.RateLimitError) as error:
                served.client().chat.completions.create(**asked())
            assert error.value.code == "queue_timeout"
            go()
            assert first.result().choices[0].finish_reason == "length"
        assert served.engine.waiting == 0


def test_a_request_that_waits_too_long_to_be_rendered_is_429(model, dials, monkeypatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(app, "prepare", lambda *_: go.wait(20))
    with running(model, dials, Limits(seconds=0.2)) as served:
        with pytest.raises(openai.RateLimitError) as error:
            served.client().chat.completions.create(**asked())
        go.set()
    assert error.value.code == "queue_timeout"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place(model: ChatModel, dials: list[Dial], stream: bool) -> None:
    with model.editing([slowed(model, 0.1)]), running(model, dials, max_batch=1, max_queue=1) as served:
        for _ in range(3):  # one decoding, one waiting, over and over
            with httpx.Client() as leaving:
                threads = [threading.Thread(target=leave, args=(leaving, served, stream)) for _ in range(2)]
                for thread in threads:
                    thread.start()
                    time.sleep(0.15)
                for thread in threads:
                    thread.join()
            until(lambda: served.engine.decoding == served.engine.waiting == 0, seconds=3)
        started = time.monotonic()
        assert served.client().chat.completions.create(**asked(), max_tokens=1).choices
        assert time.monotonic() - started < 2


def test_a_client_that_leaves_before_its_stream_begins_frees_its_place(model: ChatModel, dials: list[Dial]) -> None:
    engine = Engine(model, dials, max_batch=1, max_queue=1)
    serving = create_app(engine, ServedModel("two-knobs", 1, "f" * 12), Limits())
    bodies = [json.dumps(asked(stream=True)).encode()]
    scope = {"type": "http", "method": "POST", "path": COMPLETIONS, "query_string": b"",
             "headers": [(b"content-type", b"application/json")]}  # fmt: skip

    async def receive() -> dict[str, object]:
        if bodies:
            return {"type": "http.request", "body": bodies.pop()}
        if not any(choice.emitted for choice in engine._decoding):
            await asyncio.Event().wait()  # the client stays until the prompt is read
        return {"type": "http.disconnect"}

    async def scenario() -> int:
        async with serving.router.lifespan_context(serving):
            await serving(scope, receive, lambda _message: asyncio.sleep(0))
            return engine.decoding

    with model.editing([slowed(model, 0.1)]):
        assert asyncio.run(scenario()) == 0


def leave(client: httpx.Client, served: Running, stream: bool) -> None:
    posted = client.stream("POST", served.url + COMPLETIONS, json=asked(stream=stream), timeout=0.4)
    with suppress(httpx.TimeoutException), posted as response:
        next(response.iter_lines())


def test_a_body_that_does_not_arrive_is_408_and_an_answer_may_take_longer(model: ChatModel) -> None:
    slow_model = model.editing([slowed(model, 0.1)])
    with slow_model, running(model, [], Limits(body_seconds=0.3)) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: 100\r\n\r\n{")  # fmt: skip
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
        chunks = list(served.client().chat.completions.create(**asked(), stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_many_at_once_get_their_own_answers(served: Running, reference: ChatModel, dials: list[Dial]) -> None:
    texts = [f"how do i {verb} the engine at home?" for verb in ("fix", "lift")] + [STRIKE, UNKNOWN]
    cases = [(text, thresholds) for text in texts for thresholds in ((0.0, 0.5), (1.0, 0.0), (1.0, 1.0))]
    expected = [
        generate_once(reference, [text], dials, {"normative": n, "epistemic": e}, 24)[0].completion
        for text, (n, e) in cases
    ]
    client = served.client()

    def kept() -> set[Choice]:
        gc.collect()
        return {one for one in gc.get_objects() if isinstance(one, Choice)}

    before = kept()  # by servers of other tests

    def ask(case: tuple[str, tuple[float, float]]) -> str | None:
        text, (n, e) = case
        body = {"normative_threshold": n, "epistemic_threshold": e}
        return client.chat.completions.create(**asked(text), extra_body=body).choices[0].message.content

    with ThreadPoolExecutor(len(cases)) as pool:
        assert list(pool.map(ask, cases)) == expected
    assert len(set(expected)) > 5
    until(lambda: not kept() - before)  # and no choice is kept


def test_requests_that_wait_when_the_server_stops_get_an_error(model, dials, monkeypatch) -> None:
    monkeypatch.setattr(app, "GRACE_S", 1)

    def ask(client: openai.OpenAI, stream: bool) -> str:
        try:
            found = client.chat.completions.create(**asked(), stream=stream)
            return "".join(chunk.choices[0].delta.content or "" for chunk in found) if stream else "answered"
        except openai.APIError as error:
            return error.body["message"]

    with model.editing([slowed(model, 0.2)]), ThreadPoolExecutor(4) as pool:
        with running(model, dials, max_batch=1) as served:
            first = pool.submit(ask, served.client(), True)
            until(lambda: served.engine.decoding == 1)
            others = [pool.submit(ask, served.client(), stream) for stream in (True, False, False)]
            until(lambda: served.engine.waiting == 3)
        found = [one.result() for one in (first, *others)]
    assert found == ["the server is stopping"] * 4


ASK = {"role": "user", "content": BENIGN}


def test_an_answer_can_be_sent_back_as_the_openai_client_gives_it(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="two-knobs", messages=[ASK]).choices[0].message
    for turn in (first, first.model_dump()):
        messages = [ASK, turn, {"role": "user", "content": UNKNOWN}]
        assert client.chat.completions.create(model="two-knobs", messages=messages).choices[0].message.content
