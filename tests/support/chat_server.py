"""A real HTTP server on this machine: /v1/chat/completions and /v1/completions, which answer as a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from scoring.judges.rules import RuleJudge
from tests.support.local_http import QuietHandler, serving

RULES = RuleJudge()


@dataclass(frozen=True)
class Asked:
    """One request as the server got it."""

    number: int
    body: dict[str, Any]
    key: str

    @property
    def question(self) -> dict[str, Any]:
        return json.loads(self.body["messages"][1]["content"])


@dataclass(frozen=True)
class Answer:
    """What the server sends.

    `content` and `refusal` are of its message, `text` is a completed text, `code` of its error, `raw` a whole body.
    """

    content: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    finish: str = "stop"
    refusal: str | None = None
    text: str | None = None
    code: str | None = None
    usage: dict[str, int] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10})

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw.encode()
        if self.status != 200:
            return json.dumps({"error": {"message": f"told to say {self.status}", "code": self.code}}).encode()
        message = {"role": "assistant", "content": self.content, "refusal": self.refusal}
        said = {"message": message} if self.text is None else {"text": self.text}
        choice = {"index": 0, **said, "finish_reason": self.finish}
        return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": self.usage}).encode()


def by_rules(asked: Asked) -> Answer:
    """Judge as the rules do, so that what comes back can be held against them."""
    turns = [turn["content"] for turn in asked.question["conversation"] if turn["role"] == "user"]
    verdict = RULES.judge(asked.question["completion"], turns[-1] if turns else None)
    return Answer(json.dumps({"action": verdict.action, "evidence": verdict.evidence, "intent": 0.5, "outcome": None}))


class ChatServer:
    """What was asked of a running server, and what it does: `answers` may be exchanged at any time."""

    def __init__(self) -> None:
        self.answers: Callable[[Asked], Answer] = by_rules
        self.asked: list[Asked] = []
        self.answered: list[Asked] = []  # in the order in which answers were sent
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = ""

    def completions(self) -> list[str]:
        return [asked.question["completion"] for asked in self.asked]

    def serve(self, path: str, key: str, body: dict[str, Any]) -> Answer:
        if path != ("/v1/completions" if "prompt" in body else "/v1/chat/completions"):
            return Answer(status=404)
        with self.lock:
            asked = Asked(len(self.asked) + 1, body, key)
            self.asked.append(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self.answers(asked)
        finally:
            with self.lock:
                self.at_once -= 1
                self.answered.append(asked)


@contextmanager
def running() -> Iterator[ChatServer]:
    """Run a server while the block runs."""
    chat = ChatServer()

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802
            answer = chat.serve(self.path, self.headers.get("Authorization", ""), json.loads(self.body()))
            try:
                self.send(answer.status, answer.body(), {"Content-Type": "application/json"} | answer.headers)
            except OSError:  # who asked is gone
                self.close_connection = True

    with serving(Handler) as address:
        chat.url = f"{address}/v1"
        yield chat
