"""Limits of requests: bytes, tokens and seconds of each, how long it waits, and how many wait to be rendered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.replies import ApiError

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_tokens: int = 512  # of an answer
    max_body: int = 2**20  # bytes
    seconds: float = 120.0  # in the queue and while decoding, together
    body_seconds: float = 10.0  # until the body has arrived


class BodyLimits:
    """Middleware that rejects bodies that are too large (413) or do not arrive in time (408), with an HTTPException."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
        whole, n_bytes = scope["type"] != "http", 0

        async def limited() -> Message:
            nonlocal whole, n_bytes
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
                raise HTTPException(408, late) from None
            whole = not message.get("more_body", False)
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._limits.max_body:
                raise HTTPException(413, f"the body is larger than {self._limits.max_body:,} bytes")
            return message

        await self._app(scope, limited, send)


@asynccontextmanager
async def until_disconnect(connection: Request, deadline: float | None = None) -> AsyncIterator[None]:
    """End the block with an ApiError when the client disconnects, or at the deadline (by time.monotonic())."""

    async def watch() -> None:
        while (await connection.receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(0)

    try:
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()) as limit:
            watching = asyncio.create_task(watch())
            try:
                yield
            finally:
                watching.cancel()
    except TimeoutError:
        raise ApiError(429, "the request waited too long; try again later", code="queue_timeout") from None


class RenderQueue:
    """One thread that renders prompts, which takes seconds for a body of a megabyte."""

    def __init__(self, max_waiting: int) -> None:
        self._thread = ThreadPoolExecutor(1, "rendering")
        self._room = max_waiting

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in its turn; a cancelled request frees its place."""
        if not self._room:
            raise ApiError(429, "the queue is full; try again later", code="queue_full")
        self._room -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._room += 1

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
