"""One request: checked and rendered before it queues, then its choices' events collected into a reply or a stream."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from extract.chat.render import Rendered, render
from extract.chat.thinking import StreamedSplit
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from serving import replies
from serving.choice import Choice, DecodingSettings, Event, Failed, Finished, PromptRead, TextPiece
from serving.engine import Engine, QueueFullError
from serving.limits import Limits
from serving.request_schema import ChatRequest
from serving.watch import Watch
from steering.actuator import OnsetBias
from steering.dial import Dial, read_places, reads_at

if TYPE_CHECKING:
    from serving.vllm_plugin.engine import VllmEngine

Decoding: TypeAlias = "Engine | VllmEngine"
SERVER_SENT = "data: {}\n\n"  # one event


@dataclass(frozen=True)
class ServedModel:
    """The name, creation time and fingerprint of the model that clients see."""

    name: str
    created: int
    fingerprint: str


def prepare(
    asked: ChatRequest, model: ChatModel, dials: Sequence[Dial], limits: Limits, name: str, deadline: float
) -> tuple[Rendered, list[DecodingSettings]]:
    """Return a rendered conversation and the decoding settings of each choice; an ApiError names the wrong field."""
    if asked.model != name:
        raise replies.ApiError(
            404, f"unknown model {asked.model!r}; this server has {name!r}", "model", "model_not_found"
        )
    try:
        thresholds = asked.resolved(dials)
    except ValueError as error:
        raise replies.ApiError(400, str(error), str(error).partition(":")[0]) from None
    if asked.token_readings and not any(dial.read for dial in dials):
        raise replies.ApiError(400, "token_readings: no dial of this server reads tokens", "token_readings")
    row = _rendered(asked, model, dials, name)
    prefixes = [dial.actuator.prefixes for dial in dials if dial.read is None and isinstance(dial.actuator, OnsetBias)]
    n_ahead = max((len(prefix) - 1 for each in prefixes for prefix in each), default=0)  # tokens read after the prompt
    max_new_tokens = _max_new_tokens(asked, len(row.token_ids), n_ahead, model.context, limits)
    seeds = np.random.SeedSequence(secrets.randbits(64) if asked.seed is None else asked.seed % 2**64)
    settings = [
        DecodingSettings(
            max_new_tokens=max_new_tokens,
            temperature=asked.temperature or 0.0,
            top_p=asked.top_p or 1.0,
            seed=int(seed),
            stops=asked.stops,
            thresholds=thresholds,
            deadline=deadline,
            streamed=bool(asked.stream),
            token_readings=bool(asked.token_readings),
        )
        for seed in seeds.generate_state(asked.n or 1, np.uint64)
    ]
    return row, settings


def _rendered(asked: ChatRequest, model: ChatModel, dials: Sequence[Dial], name: str) -> Rendered:
    messages = asked.conversation
    if messages[-1]["role"] != "user":
        raise replies.ApiError(
            400, "messages: the last message must have the role user", f"messages[{len(messages) - 1}].role"
        )
    try:
        row = render(model.tokenizer, Prompt("of this request", messages, "benign", "answer"))
    except UserError as error:
        reason = str(error).removeprefix("prompt 'of this request': ").replace(str(model.tokenizer.name_or_path), name)
        raise replies.ApiError(400, f"messages: {reason}", "messages") from None
    for what, locus in read_places(dials).items():
        if locus.position not in row.roles:
            raise replies.ApiError(400, f"messages: {reads_at(what, locus)}, which they lack", "messages")
    return row


def _max_new_tokens(asked: ChatRequest, n_prompt: int, n_ahead: int, context: int | None, limits: Limits) -> int:
    room = (context or math.inf) - n_prompt
    if room < max(1, n_ahead):
        raise replies.ApiError(
            400,
            f"messages: they have {n_prompt} tokens; the model's context is {context} tokens, including the answer",
            "messages",
            "context_length_exceeded",
        )
    if asked.max_tokens and asked.max_completion_tokens and asked.max_tokens != asked.max_completion_tokens:
        raise replies.ApiError(400, "max_tokens: differs from max_completion_tokens, its newer name", "max_tokens")
    wanted, param = asked.token_limit, "max_completion_tokens" if asked.max_completion_tokens else "max_tokens"
    if wanted is None:
        return int(min(limits.max_tokens, room))
    if wanted > limits.max_tokens:
        raise replies.ApiError(400, f"{param}: {wanted} is more than this server's limit of {limits.max_tokens}", param)
    if wanted > room:
        raise replies.ApiError(
            400,
            f"{param}: {wanted} does not fit: the messages have {n_prompt} tokens of the model's context of {context}, "
            f"so at most {room} are left",
            param,
            "context_length_exceeded",
        )
    return wanted


class Exchange:
    """A request, from the queue to its answer. `close` must come last; it abandons unfinished choices."""

    def __init__(
        self,
        engine: Decoding,
        served: ServedModel,
        row: Rendered,
        settings: Sequence[DecodingSettings],
        conversation: Sequence[Mapping[str, str]],
        watch: Watch,
    ) -> None:
        self._engine, self._n_prompt, self._conversation, self._watch = engine, len(row.token_ids), conversation, watch
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._head = replies.ReplyHead(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=served.name,
            system_fingerprint=served.fingerprint,
        )
        self._choices = [Choice(row, one, partial(self._send, index)) for index, one in enumerate(settings)]

    async def begin(self) -> None:
        """Join the queue and wait until the dials have read the prompt."""
        try:
            self._engine.submit(self._choices)
        except QueueFullError:
            raise replies.ApiError(429, "the queue is full; try again later", code="queue_full") from None
        self._first = await self._event()
        _, event = self._first
        if not isinstance(event, TextPiece):
            await asyncio.to_thread(self._watch.prompt, self._conversation, event.readings)

    async def whole(self) -> replies.ChatCompletion:
        ended = {index: event async for index, event in self._until_finished() if isinstance(event, Finished)}
        choices = []
        for i, one in sorted(ended.items()):
            about = {"finish_reason": one.finish, "dials": one.readings, "token_readings": one.tokens}
            thought, content = StreamedSplit().push(one.text, last=True)
            message = replies.AssistantMessage(content=content, reasoning_content=thought or None)
            choices.append(replies.WholeChoice(index=i, message=message, **about))
        return replies.ChatCompletion(**dict(self._head), choices=choices, usage=self._usage(ended.values()))

    async def chunks(self, *, include_usage: bool) -> AsyncIterator[str]:
        """Yield the answer as server-sent events; if decoding fails midway, the last event is an error."""
        ended: list[Finished] = []
        try:
            async for index, event in self._until_finished():
                match event:
                    case PromptRead(readings):
                        new = replies.ChunkChoice(
                            index=index, delta=replies.Delta(role="assistant", content=""), dials=readings
                        )
                    case TextPiece(text, thought):
                        delta = replies.Delta(**{"reasoning_content" if thought else "content": text})
                        new = replies.ChunkChoice(index=index, delta=delta)
                    case Finished(finish=finish, readings=read, tokens=tokens):
                        ended.append(event)
                        about = {"finish_reason": finish, "dials": read, "token_readings": tokens}
                        new = replies.ChunkChoice(index=index, delta=replies.Delta(), **about)
                yield SERVER_SENT.format(replies.Chunk(**dict(self._head), choices=[new]).model_dump_json())
            if include_usage:
                usage = replies.Chunk(**dict(self._head), choices=[], usage=self._usage(ended))
                yield SERVER_SENT.format(usage.model_dump_json())
            yield SERVER_SENT.format("[DONE]")
        except replies.ApiError as error:
            yield SERVER_SENT.format(error.body())
        finally:
            self.close()

    def close(self) -> None:
        self._engine.withdraw(self._choices)

    async def _until_finished(self) -> AsyncIterator[tuple[int, PromptRead | TextPiece | Finished]]:
        left, (index, event) = len(self._choices), self._first
        while True:
            yield index, event
            if isinstance(event, Finished):
                left -= 1
                self._watch.answer(event.readings)
            if not left:
                return
            index, event = await self._event()

    async def _event(self) -> tuple[int, PromptRead | TextPiece | Finished]:
        index, event = await self._events.get()
        if isinstance(event, Failed):
            raise replies.ApiError(503 if event.transient else 500, event.why)
        return index, event

    def _send(self, index: int, event: Event) -> None:  # from the decoding thread
        self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

    def _usage(self, ended: Iterable[Finished]) -> replies.Usage:
        n = sum(one.n_tokens for one in ended)
        return replies.Usage(prompt_tokens=self._n_prompt, completion_tokens=n, total_tokens=self._n_prompt + n)
