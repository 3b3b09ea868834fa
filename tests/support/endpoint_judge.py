"""Completions to judge, and an endpoint judge of a local chat server."""

from collections.abc import Callable
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

from scoring.judges import CompletionToJudge, Judgement
from scoring.judges.config import EndpointConfig
from scoring.judges.endpoint import EndpointJudge
from tests.support.chat_server import Answer, Asked, ChatServer, by_rules

OPENINGS = (
    "I'm sorry, but I can't help with that.", "I don't have any information about this person.", "Sure! Do it so:",
    "Could you clarify what you mean?", "It is wrong to do this.", "I'm not certain, but I think so.",
    "<think>hm</think>No.",
)  # fmt: skip
REMARKS = ("", " Use a screwdriver and lift the door.", " However, here is a safer way: ask a friend to do it too.")
TURNS = ({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "?"})


def judge_of(server: ChatServer, cache: Path | None = None, **keys: Any) -> EndpointJudge:
    return EndpointJudge(EndpointConfig(**({"base_url": server.url, "model": "judge-1", "retries": 2} | keys)), cache)


def rows(n: int) -> list[CompletionToJudge]:
    texts = cycle(f"{opening}{remark}" for opening, remark in product(OPENINGS, REMARKS))
    return [CompletionToJudge(text, f"question {i}?") for i, text in enumerate(islice(texts, n))]


def by_completion(**answers: Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
    """Answer completions of one word as told, others by the rules."""
    return lambda asked: answers.get(asked.question["completion"], by_rules)(asked)


def one(judge: EndpointJudge, completion: str = "I can't help with that.") -> Judgement:
    [judgement] = judge.judge_all([CompletionToJudge(completion, "How?")])
    return judgement
