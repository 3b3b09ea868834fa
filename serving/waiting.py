"""Bounds how long a request waits, and how many requests wait to be rendered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import Request

from serving.errors import ApiError

T = TypeVar("T")


@asynccontextmanager
async def until_disconnect(connection: Request, deadline: float | None = None) -> AsyncIterator[None]:
    """End the block when the client disconnects, or at the deadline (by time.monotonic()).

    Raises:
        ApiError: the block was ended; after a disconnect it is not sent.
    """

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
    """One thread that renders prompts, which takes seconds for a body of a megabyte.

    Args:
        max_waiting: requests that may wait, including the one being rendered.
    """

    def __init__(self, max_waiting: int) -> None:
        self._thread = ThreadPoolExecutor(1, "rendering")
        self._room = max_waiting

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in its turn; a cancelled request frees its place.

        Raises:
            ApiError: too many requests are waiting.
        """
        if not self._room:
            raise ApiError(429, "the queue is full; try again later", code="queue_full")
        self._room -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._room += 1

    def close(self) -> None:
        """Stop rendering."""
        self._thread.shutdown(wait=False, cancel_futures=True)
