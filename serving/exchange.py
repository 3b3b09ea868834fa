"""One request while it is decoded: collects its choices' events from the decoding thread into a reply or a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from extract.chat.render import Rendered
from serving.choice import Choice, DecodingSettings, Event, Failed, Finished, PromptRead, TextPiece
from serving.engine import Engine, QueueFullError
from serving.replies import (
    ApiError,
    AssistantMessage,
    ChatCompletion,
    Chunk,
    ChunkChoice,
    Delta,
    ReplyHead,
    Usage,
    WholeChoice,
)

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


class Exchange:
    """A request, from the queue to its answer. `close` must come last; it abandons unfinished choices."""

    def __init__(
        self, engine: Decoding, served: ServedModel, row: Rendered, settings: Sequence[DecodingSettings]
    ) -> None:
        self._engine, self._n_prompt = engine, len(row.token_ids)
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._head = ReplyHead(
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
            raise ApiError(429, "the queue is full; try again later", code="queue_full") from None
        self._first = await self._event()

    async def whole(self) -> ChatCompletion:
        ended = {index: event async for index, event in self._until_finished() if isinstance(event, Finished)}
        choices = []
        for i, one in sorted(ended.items()):
            about = {"finish_reason": one.finish, "dials": one.readings, "token_readings": one.tokens}
            choices.append(WholeChoice(index=i, message=AssistantMessage(content=one.text), **about))
        return ChatCompletion(**dict(self._head), choices=choices, usage=self._usage(ended.values()))

    async def chunks(self, *, include_usage: bool) -> AsyncIterator[str]:
        """Yield the answer as server-sent events; if decoding fails midway, the last event is an error."""
        ended: list[Finished] = []
        try:
            async for index, event in self._until_finished():
                match event:
                    case PromptRead(readings):
                        new = ChunkChoice(index=index, delta=Delta(role="assistant", content=""), dials=readings)
                    case TextPiece(text):
                        new = ChunkChoice(index=index, delta=Delta(content=text))
                    case Finished(finish=finish, readings=read, tokens=tokens):
                        ended.append(event)
                        about = {"finish_reason": finish, "dials": read, "token_readings": tokens}
                        new = ChunkChoice(index=index, delta=Delta(), **about)
                yield SERVER_SENT.format(Chunk(**dict(self._head), choices=[new]).model_dump_json())
            if include_usage:
                usage = Chunk(**dict(self._head), choices=[], usage=self._usage(ended))
                yield SERVER_SENT.format(usage.model_dump_json())
            yield SERVER_SENT.format("[DONE]")
        except ApiError as error:
            yield SERVER_SENT.format(error.body())
        finally:
            self.close()

    def close(self) -> None:
        self._engine.withdraw(self._choices)

    async def _until_finished(self) -> AsyncIterator[tuple[int, PromptRead | TextPiece | Finished]]:
        left, (index, event) = len(self._choices), self._first
        while True:
            yield index, event
            left -= isinstance(event, Finished)
            if not left:
                return
            index, event = await self._event()

    async def _event(self) -> tuple[int, PromptRead | TextPiece | Finished]:
        index, event = await self._events.get()
        if isinstance(event, Failed):
            raise ApiError(503 if event.transient else 500, event.why)
        return index, event

    def _send(self, index: int, event: Event) -> None:  # from the decoding thread
        self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

    def _usage(self, ended: Iterable[Finished]) -> Usage:
        n = sum(one.n_tokens for one in ended)
        return Usage(prompt_tokens=self._n_prompt, completion_tokens=n, total_tokens=self._n_prompt + n)
