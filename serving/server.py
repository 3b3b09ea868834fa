"""Listening: where, who may, and until when."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from serving.app import create_app
from serving.engine import Engine
from serving.exchange import ServedModel
from serving.limits import Limits
from steering.dial import Dial, Kind

GRACE_S = 5  # for answers to end in once the server is to stop
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Address:
    """Where to listen, and what clients must know.

    Raises:
        UserError: others can reach it, and there is no API key.
    """

    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.api_key is not None and not self.api_key.strip():
            raise UserError("the API key is empty; leave it out, or give one")
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key):
            raise UserError("the API key holds blanks or signs that no header carries: use letters, digits and signs "
                            "of ASCII")  # fmt: skip
        if not self.is_loopback and not self.api_key:
            raise UserError(f"others can reach {self.host}: set an API key in REFUSAL_API_KEY (or --api-key), or "
                            "listen on 127.0.0.1")  # fmt: skip

    @property
    def is_loopback(self) -> bool:
        """Say whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url_host(self) -> str:
        """Return the host as it stands in a URL and in a Host header."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Return the names to answer to. On loopback, pages of a browser must not reach it under a name of theirs."""
        return (*LOOPBACK, self.url_host) if self.is_loopback else ("*",)

    def listen(self) -> socket.socket:
        """Open the port.

        Raises:
            UserError: it cannot be had.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while")[0]
            raise UserError(f"cannot listen on {self.host} port {self.port}: {why}; choose another with --host and "
                            "--port") from None  # fmt: skip


def serve_forever(
    model: ChatModel,
    dials: Sequence[Dial],
    thresholds: Mapping[Kind, float],
    address: Address,
    limits: Limits,
    name: str | None,
    max_batch: int,
    max_queue: int,
    report: Callable[[str], None],
) -> None:
    """Serve until interrupted.

    Args:
        thresholds: where the dials stand for requests that say nothing, by kind; else their own.
        name: what clients call the model; by default the last part of its name.

    Raises:
        UserError: the port cannot be had.
    """
    placed = [replace(dial, threshold=thresholds.get(dial.kind, dial.threshold)) for dial in dials]
    served = ServedModel(name or Path(model.name).name, int(time.time()), model.fingerprint()[:12])
    engine = Engine(model, placed, max_batch, max_queue)
    app = create_app(engine, served, limits, address.api_key, address.allowed_hosts)
    with address.listen() as listening:
        stand = ", ".join(f"{dial.kind} {dial.threshold:.3f}" for dial in placed) or "none"
        url = f"http://{address.url_host}:{listening.getsockname()[1]}/v1"
        report(f"serving {served.name} at {url} (dials: {stand}); Ctrl-C stops")
        with suppress(KeyboardInterrupt):  # which is not raised where the shell has SIGINT ignored
            Server(app, engine).run(sockets=[listening])
    report("stopped")


class Server(uvicorn.Server):
    """Tells whoever still waits, some seconds after it was asked to stop; uvicorn itself would cut them off."""

    def __init__(self, app: FastAPI, engine: Engine) -> None:
        self._engine = engine
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,  # prompts are not written to a log
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=2 * GRACE_S,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = asyncio.create_task(self._close_engine())
        await super().shutdown(sockets)
        closing.cancel()

    async def _close_engine(self) -> None:
        await asyncio.sleep(GRACE_S)
        await asyncio.to_thread(self._engine.close)
