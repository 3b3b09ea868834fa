"""Runs the server: address, access, start and stop."""

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
from serving.exchange import Decoding, ServedModel
from serving.limits import Limits
from steering.dial import Dial, Kind

GRACE_S = 5  # running answers may finish for this long after the stop signal
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Address:
    """The address to listen on, and the API key, which other machines need."""

    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.api_key is not None and not self.api_key.strip():
            raise UserError("the API key is empty; leave it out or set one")
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key):
            raise UserError(
                "the API key has spaces or characters that are not allowed in a header: use ASCII "
                "letters, digits and punctuation"
            )
        if not self.is_loopback and not self.api_key:
            raise UserError(
                f"other machines can reach {self.host}: set an API key in REFUSAL_API_KEY (or --api-key), "
                "or listen on 127.0.0.1"
            )

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Return the accepted Host names. On loopback, this blocks web pages that rebind their own DNS name to it."""
        return (*LOOPBACK, self.url_host) if self.is_loopback else ("*",)

    def listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while")[0]
            raise UserError(
                f"cannot listen on {self.host} port {self.port}: {why}; choose another address with --host and --port"
            ) from None


def serve_forever(
    make_engine: Callable[[list[Dial]], Decoding],
    model: ChatModel,
    dials: Sequence[Dial],
    thresholds: Mapping[Kind, float],
    address: Address,
    limits: Limits,
    name: str | None,
    report: Callable[[str], None],
    *,
    ui: bool = False,
) -> None:
    """Serve until interrupted; `thresholds` replace the dials' own and those by category, `report` prints a line."""
    placed = with_thresholds(dials, thresholds)
    served = ServedModel(name or Path(model.name).name, int(time.time()), model.fingerprint()[:12])
    engine = make_engine(placed)
    app = create_app(engine, served, limits, address.api_key, address.allowed_hosts, ui=ui)
    with address.listen() as listening:
        shown = ", ".join(f"{dial.kind} {dial.threshold:.3f}" for dial in placed) or "none"
        url = f"http://{address.url_host}:{listening.getsockname()[1]}"
        report(f"serving {served.name} at {url}/v1 (dials: {shown}); stop with Ctrl-C")
        if ui:
            report(f"page: {url}/ui")
        with suppress(KeyboardInterrupt):  # not raised where the shell ignores SIGINT
            Server(app, engine).run(sockets=[listening])
    report("stopped")


def with_thresholds(dials: Sequence[Dial], thresholds: Mapping[Kind, float]) -> list[Dial]:
    """Return the dials with the given thresholds in place of their own and of those by category."""
    return [
        replace(dial, threshold=thresholds[dial.kind], by_category=None) if dial.kind in thresholds else dial
        for dial in dials
    ]


class Server(uvicorn.Server):
    """Sends an error to waiting clients some seconds after the stop signal; uvicorn alone would cut them off."""

    def __init__(self, app: FastAPI, engine: Decoding) -> None:
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
