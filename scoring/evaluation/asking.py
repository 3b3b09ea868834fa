"""Asks a model of this machine or behind an endpoint. An evaluation that was killed asks only for the rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from extract.keyed_file import KeyedFile, content_key
from extract.progress import Advance
from extract.prompts.prompt import Prompt
from scoring.judges.chat_endpoint import (
    FILTERED,
    ChatEndpoint,
    Reply,
    RequestFailedError,
    UnreadableError,
    concurrently,
)
from scoring.judges.config import EndpointConfig

READ_AHEAD = 2  # batches handed out for each concurrent request


@dataclass(frozen=True)
class Target:
    """Who is asked: what its answers depend on, and how it is asked."""

    name: str
    settings: dict[str, str | int | float | None]
    depends_on: Sequence[object]
    ask: Callable[[Sequence[Prompt]], Sequence[Reply] | str]  # the answers to a batch, or the kind of its failure
    batch: int = 1  # prompts
    concurrency: int = 1


class KeptAnswers:
    """A thread-safe file of answers, each on the disk before the next is asked for.

    Args:
        asked_of: all that an answer depends on besides the prompt: the model, the endpoint, the settings.
    """

    def __init__(self, path: Path, asked_of: Sequence[object]) -> None:
        remedy = "choose another directory with --out, or delete it to ask everything again"
        self._file = KeyedFile(path, "answers", ("answer",), purpose="the answers so far", remedy=remedy)
        self._asked_of = tuple(asked_of)

    def get(self, prompt: Prompt) -> Reply | None:
        """Return the answer that is kept, if there is one."""
        return next((Reply(**json.loads(answer)) for (answer,) in self._file.get([self._key(prompt)]).values()), None)

    def put(self, prompts: Sequence[Prompt], answers: Sequence[Reply]) -> None:
        """Keep answers; they are on the disk when this returns."""
        rows = {self._key(prompt): [json.dumps(vars(answer))] for prompt, answer in zip(prompts, answers, strict=True)}
        self._file.put(rows)

    def left(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts without an answer; of several with the same messages, the first."""
        waiting = {self._key(prompt): prompt for prompt in reversed(prompts)}
        done = self._file.get(waiting)
        return [prompt for key, prompt in reversed(waiting.items()) if key not in done]

    def close(self) -> None:
        self._file.close()

    def _key(self, prompt: Prompt) -> str:
        return content_key(*self._asked_of, prompt.messages)


def ask_all(prompts: Sequence[Prompt], target: Target, answers: KeptAnswers, advance: Advance) -> Counter[str]:
    """Ask all prompts, keep each answer at once, and return the numbers of failed prompts by kind.

    A prompt whose request and retries failed has no answer; it is asked again when the evaluation is run again.
    """
    failed = Counter[str]()

    def ask(batch: Sequence[Prompt]) -> tuple[int, str | None]:
        """Ask and keep the answers; return the number of prompts and the kind of failure."""
        replies = target.ask(batch)
        if isinstance(replies, str):
            return len(batch), replies
        answers.put(batch, replies)
        return len(batch), None

    if target.batch > 1:  # prompts of a batch have about one length
        prompts = sorted(prompts, key=lambda prompt: -len(str(prompt.messages)))
    batches = [prompts[start : start + target.batch] for start in range(0, len(prompts), target.batch)]
    alone = target.concurrency == 1  # a local model answers in this thread, where Ctrl-C reaches it
    for n, kind in map(ask, batches) if alone else concurrently(ask, batches, target.concurrency, READ_AHEAD):
        advance(n)
        if kind is not None:
            failed[kind] += n
    return failed


def endpoint_target(config: EndpointConfig, settings: dict[str, str | int | float | None]) -> Target:
    """Return the model behind an endpoint; a reply that cannot be read is asked for again, as often as a failed one."""
    endpoint = ChatEndpoint(config)

    def ask(batch: Sequence[Prompt]) -> Sequence[Reply] | str:
        [prompt] = batch
        for _ in range(config.retries + 1):
            try:
                reply = endpoint.reply(prompt.messages)
            except RequestFailedError as error:
                if error.kind != FILTERED:
                    return error.kind
                reply = Reply("", by="filter")
            except UnreadableError:
                continue
            return [replace(reply, text=reply.text.encode("utf-8", "replace").decode())]  # no lone surrogate is written
        return "unreadable"

    depends_on = ["endpoint", config.base_url, config.model, *settings.values()]
    return Target(config.model, settings, depends_on, ask, concurrency=config.concurrency)
