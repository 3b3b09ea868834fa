"""Waiting ends at the deadline or when the client disconnects; the number waiting to be rendered is bounded."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from starlette.requests import Request

from serving.limits import RenderQueue, until_disconnect
from serving.replies import ApiError


class FakeClient:
    """A connection, and whether its client has left."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    @property
    def connection(self) -> Request:
        async def receive() -> dict[str, str]:
            await self.left.wait()
            return {"type": "http.disconnect"}

        return Request({"type": "http"}, receive)


async def waited(caller: FakeClient, rendering: RenderQueue, work: Callable[[], object], seconds: float = 60) -> object:
    """Return the result of the work, or the code of the error."""
    try:
        async with until_disconnect(caller.connection, time.monotonic() + seconds):
            return await rendering.run(work)
    except ApiError as error:
        return error.detail.code


def test_the_render_queue_is_bounded_and_clients_may_disconnect() -> None:
    go, done = threading.Event(), []

    async def scenario() -> None:
        rendering, leaver = RenderQueue(2), FakeClient()
        held = asyncio.create_task(waited(FakeClient(), rendering, lambda: go.wait(20)))
        leaves = asyncio.create_task(waited(leaver, rendering, lambda: done.append("left")))
        await asyncio.sleep(0)
        assert await waited(FakeClient(), rendering, lambda: done.append("too many")) == "queue_full"
        leaver.left.set()
        assert await leaves == "queue_timeout"  # never sent
        assert await waited(FakeClient(), rendering, lambda: done.append("late"), 0.05) == "queue_timeout"
        waits = asyncio.create_task(waited(FakeClient(), rendering, lambda: done.append("waited")))
        await asyncio.sleep(0)
        go.set()
        assert await held is True
        await waits
        rendering.close()

    asyncio.run(scenario())
    assert done == ["waited"]


def test_a_block_that_ends_in_time_keeps_its_result_and_its_errors() -> None:
    async def scenario() -> None:
        async with until_disconnect(FakeClient().connection, time.monotonic() + 60):
            pass
        with pytest.raises(ValueError, match="own"):
            async with until_disconnect(FakeClient().connection):
                raise ValueError("its own")

    asyncio.run(scenario())
