"""Limits of one request: bytes, tokens and seconds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_tokens: int = 512  # of an answer
    max_body: int = 2**20  # bytes
    seconds: float = 120.0  # in the queue and while decoding, together
    body_seconds: float = 10.0  # until the body has arrived


class BodyLimits:
    """Middleware that rejects bodies that are too large (413) or do not arrive in time (408), with an HTTPException.

    After the body there is no time limit, for instance until the client disconnects.
    """

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
                raise self._late() from None
            whole = not message.get("more_body", False)
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._limits.max_body:
                raise self._large()
            return message

        await self._app(scope, limited, send)

    def _late(self) -> HTTPException:
        return HTTPException(408, f"the body did not arrive within {self._limits.body_seconds:g} seconds")

    def _large(self) -> HTTPException:
        return HTTPException(413, f"the body is larger than {self._limits.max_body:,} bytes")
