"""Asking an endpoint over real HTTP: answers are kept at once, failures counted, only what is left is asked again."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extract.progress import Advance, no_progress
from extract.prompts.prompt import Prompt
from scoring.evaluation.asking import Evaluation, KeptAnswers, ask_all, endpoint_target, finish
from scoring.judges.chat_endpoint import Reply
from scoring.judges.config import EndpointConfig
from tests.support.chat_server import Answer, Asked, ChatServer, running


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with running() as found:
        found.answers = echo
        yield found


def echo(asked: Asked) -> Answer:
    return Answer(f"you said {asked.body['messages'][-1]['content']}")


def prompts(n: int) -> list[Prompt]:
    return [Prompt(f"p{i}", ({"role": "user", "content": f"word {i}"},), "benign", "answer") for i in range(n)]


def config(server: ChatServer, **given: Any) -> EndpointConfig:
    return EndpointConfig(base_url=server.url, model="m", json_mode=False, concurrency=4, **given)


def ask_endpoint(asked: list[Prompt], given: EndpointConfig, kept: KeptAnswers, advance: Advance) -> Counter[str]:
    return ask_all(asked, endpoint_target(given, {}), kept, advance)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptAnswers]:
    found = KeptAnswers(tmp_path / "answers.sqlite", ["m"])
    yield found
    found.close()


def test_every_prompt_gets_its_own_answer_with_few_in_flight(server: ChatServer, kept: KeptAnswers) -> None:
    asked = prompts(60)
    seen = []
    failed = ask_endpoint(asked, config(server, max_tokens=9), kept, lambda n, **_: seen.append(n))
    assert not failed
    assert sum(seen) == 60
    assert [answer and answer.text for answer in map(kept.get, asked)] == [f"you said word {i}" for i in range(60)]
    assert server.most_at_once <= 4
    assert {one.body["max_tokens"] for one in server.asked} == {9}
    assert kept.get(asked[0]) == Reply("you said word 0", False, 100, 10)
    assert kept.left(asked) == []


def test_a_failing_endpoint_is_asked_again_for_the_rest_only(server: ChatServer, kept: KeptAnswers) -> None:
    rng, lock, soon = random.Random(3), threading.Lock(), {"retry-after-ms": "5"}
    faults = [(0.1, Answer(status=429, headers=soon)), (0.2, Answer(status=500, headers=soon)),
              (0.25, Answer(raw='{"choices": [{"mess')), (0.3, Answer(status=400))]  # fmt: skip

    def unreliable(asked: Asked) -> Answer:
        with lock:
            luck = rng.random()
        return next((answer for limit, answer in faults if luck < limit), None) or echo(asked)

    server.answers, asked = unreliable, prompts(120)
    failed = ask_endpoint(asked, config(server, retries=1), kept, no_progress)
    left = kept.left(asked)
    assert sum(failed.values()) == len(left) > 0
    assert set(failed) <= {"rate_limited", "server_error", "status_400", "unreadable"}
    assert failed["status_400"]
    server.answers, before = echo, len(server.asked)
    assert not ask_endpoint(left, config(server), kept, no_progress)
    assert len(server.asked) - before == len(left)  # no answer on the disk is asked again
    assert [answer and answer.text for answer in map(kept.get, asked)] == [f"you said word {i}" for i in range(120)]


def test_answers_depend_on_all_that_was_asked(tmp_path: Path) -> None:
    one, other = (KeptAnswers(tmp_path / "answers.sqlite", [name]) for name in ("m", "n"))
    asked = prompts(2)
    same = Prompt("again", asked[0].messages, "harmful", "refuse")
    one.put(asked[:1], [Reply("yes", True)])
    assert one.left([*asked, same]) == asked[1:]
    assert one.get(same) == Reply("yes", True)
    assert other.left(asked) == asked
    assert one.left([asked[1], same, Prompt("c", asked[1].messages, "benign", "answer")]) == [asked[1]]
    one.close()
    other.close()


def test_a_lone_surrogate_is_no_reason_to_lose_an_answer(server: ChatServer, kept: KeptAnswers) -> None:
    raw = '{"choices": [{"message": {"content": "a\\ud800b"}, "finish_reason": "length"}]}'
    server.answers, asked = (lambda asked: Answer(raw=raw)), prompts(1)
    ask_endpoint(asked, config(server), kept, no_progress)
    assert [answer for answer in map(kept.get, asked)] == [Reply("a?b", True)]


def test_a_refusal_outside_the_text_is_an_answer_with_its_reason(server: ChatServer, kept: KeptAnswers) -> None:
    said = {
        "word 0": Answer(None, refusal="I can't help with that."),
        "word 1": Answer(None, finish="content_filter"),
        "word 2": Answer("First you", finish="content_filter"),
        "word 3": Answer(status=400, code="content_filter"),
        "word 4": Answer(None),
    }
    server.answers, asked = (lambda one: said[one.body["messages"][-1]["content"]]), prompts(5)
    assert not ask_endpoint(asked, config(server), kept, no_progress)
    assert [(answer.by, answer.text) for answer in map(kept.get, asked) if answer] == [
        ("field", "I can't help with that."), ("filter", ""), ("filter", "First you"), ("filter", ""), (None, ""),
    ]  # fmt: skip
    assert not kept.left(asked)
    assert len(server.asked) == 5  # a filtered request is not sent again


def test_uncounted_tokens_have_no_total_and_no_cost(tmp_path: Path, kept: KeptAnswers) -> None:
    asked = prompts(2)
    record = Evaluation(target="m", suite="core", prompts=2, settings={})
    kept.put(asked[:1], [Reply("yes", False, 100, 10)])
    done = finish(tmp_path, record, asked, kept, {"timeout": 1}, (1.0, 2.0))
    assert (done.answered, done.input_tokens, done.output_tokens, done.cost) == (1, 100, 10, pytest.approx(1.2e-4))
    kept.put(asked[1:], [Reply("no", False, 100, None)])
    done = finish(tmp_path, record, asked, kept, {}, (1.0, 2.0))
    assert (done.answered, done.input_tokens, done.output_tokens, done.cost) == (2, 200, None, None)
    assert Evaluation.read(tmp_path / "evaluation.json") == done
