"""The server: routes (chat completions, models, health), address, access, start and stop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.background import BackgroundTask
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from extract.capture_spec import THOUGHT_END
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from serving import replies
from serving.exchange import Decoding, Exchange, ServedModel, prepare
from serving.limits import BodyLimits, Limits, RenderQueue, until_disconnect
from serving.request_schema import ChatRequest
from serving.watch import DialState, Watch
from steering.dial import Dial, Kind

GRACE_S = 5  # running answers may finish for this long after the stop signal
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HERE = Path(__file__).resolve().parent / "live"
LOG = logging.getLogger("refusal.serve")
LIVE = {"GET /ui": "a page: answers side by side, with every token's readings"}  # of the index, where it is served
BEARER = HTTPBearer(auto_error=False)
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": replies.ErrorBody, "description": "A field is wrong; `param` names it."},
    401: {"model": replies.ErrorBody, "description": "The API key is missing or wrong."},
    404: {"model": replies.ErrorBody, "description": "There is no such model."},
    408: {"model": replies.ErrorBody, "description": "The body did not arrive in time."},
    413: {"model": replies.ErrorBody, "description": "The body is too large."},
    429: {"model": replies.ErrorBody, "description": "The queue is full, or the request waited in it too long."},
    503: {"model": replies.ErrorBody, "description": "The server is out of memory, or is stopping."},
}


def create_app(
    engine: Decoding,
    served: ServedModel,
    limits: Limits,
    api_key: str | None = None,
    hosts: Sequence[str] = ("*",),
    *,
    ui: bool = False,
    log: Path | None = None,
    say: Callable[[str], None] = LOG.warning,
) -> FastAPI:
    """Return the server's application, which starts the engine and closes it.

    Args:
        api_key: the bearer token that clients must send; None: no token.
        hosts: host names that the server accepts.
        ui: serve the live page at /ui, where `/` leads a browser.
        log: a file that every conversation and its readings are appended to; None: nothing is kept.
        say: called with a line when what the dials read has changed.
    """
    registry = CollectorRegistry()
    watch = Watch(engine.dials, registry, say, log)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        rendering.close()
        await asyncio.to_thread(engine.close)

    app = FastAPI(
        title="refusal-probes",
        summary="OpenAI-compatible chat completions with a normative and an epistemic threshold.",
        lifespan=lifespan,
    )
    app.add_middleware(BodyLimits, limits=limits)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    replies.add_error_handlers(app)

    def check_key(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
        if given is None or not secrets.compare_digest(given.credentials.encode(), str(api_key).encode()):
            why = "send the server's API key as: Authorization: Bearer KEY"
            raise replies.ApiError(401, why, code="invalid_api_key")

    allowed = [Depends(check_key)] if api_key else []
    rendering = RenderQueue(engine.max_queue)
    dials = {dial.kind: replies.DialDefault.model_validate(dial) for dial in engine.dials}
    card = replies.ModelCard(id=served.name, created=served.created, dials=dials)

    @app.post(
        "/v1/chat/completions",
        dependencies=allowed,
        response_model=None,
        responses=ERROR_RESPONSES | {200: {"model": replies.ChatCompletion}},
    )
    async def complete(asked: ChatRequest, connection: Request) -> Response:
        """Answer a conversation, whole or as a stream of server-sent events."""
        deadline = time.monotonic() + limits.seconds
        if asked.n and asked.n > engine.max_queue:
            raise replies.ApiError(
                400, f"n: {asked.n} answers are more than this server's queue of {engine.max_queue} can hold", "n"
            )
        if asked.token_readings and not engine.reads_tokens:
            raise replies.ApiError(
                400, "token_readings: this server decodes with vLLM, which has none", "token_readings"
            )
        work = partial(prepare, asked, engine.model, engine.dials, limits, served.name, deadline)
        async with until_disconnect(connection, deadline):
            row, settings = await rendering.run(work)
        exchange = Exchange(engine, served, row, settings, asked.conversation, watch)
        try:
            async with until_disconnect(connection, deadline):
                await exchange.begin()
            if not asked.stream:
                async with until_disconnect(connection):
                    whole = await exchange.whole()
                return Response(whole.model_dump_json(), media_type="application/json")
        except BaseException:
            exchange.close()
            raise
        include_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        return StreamingResponse(
            exchange.chunks(include_usage=include_usage),
            media_type="text/event-stream",
            background=BackgroundTask(exchange.close),  # chunks that never start do not close it
        )

    @app.get("/v1/models", dependencies=allowed, responses={401: ERROR_RESPONSES[401]})
    async def models() -> replies.ModelList:
        """List the served model and its dials' default thresholds."""
        return replies.ModelList(data=[card])

    @app.get(
        "/v1/models/{model:path}", dependencies=allowed, responses={code: ERROR_RESPONSES[code] for code in (401, 404)}
    )
    async def model(model: str) -> replies.ModelCard:
        """Return the served model."""
        if model != card.id:
            raise replies.ApiError(
                404, f"unknown model {model!r}; this server has {card.id!r}", "model", "model_not_found"
            )
        return card

    @app.get("/", response_model=replies.Index)
    async def index(asked: Request) -> replies.Index | Response:
        """Name the model and the endpoints; needs no key."""
        if ui and "text/html" in asked.headers.get("accept", ""):
            return RedirectResponse("/ui")
        about = replies.Index(model=served.name)
        return about.model_copy(update={"endpoints": about.endpoints | LIVE}) if ui else about

    if ui:
        html, policy = live_page()
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        headers |= {"Referrer-Policy": "no-referrer"}

        @app.get("/ui", include_in_schema=False)
        async def live() -> Response:  # needs no key: it holds nothing of the model
            return HTMLResponse(html, headers=headers)

    @app.get("/metrics", dependencies=allowed, response_class=PlainTextResponse, responses={401: ERROR_RESPONSES[401]})
    async def metrics() -> Response:
        """Return what the dials read and decided, for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/watch", dependencies=allowed, responses={401: ERROR_RESPONSES[401]})
    async def watched() -> dict[Kind, DialState]:
        """Return what each dial has read since the start, against its certification prompts."""
        return watch.state()

    @app.get("/health")
    async def health() -> replies.Health:
        """Return the numbers of waiting and decoding choices; needs no key."""
        return replies.Health(model=served.name, waiting=engine.waiting, decoding=engine.decoding)

    _describe(app, served.name)
    return app


def _describe(app: FastAPI, name: str) -> None:
    """Adjust the OpenAPI description: one model is served, and a wrong field is 400, not 422."""
    described = app.openapi()
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    schemas = described["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["ChatRequest"]["properties"]["model"]["enum"] = [name]
    answered = described["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    answered["text/event-stream"] = {}  # events, which are not a string


def live_page() -> tuple[str, str]:
    """Return the page and its content policy: its own script, and requests to this server alone."""
    from experiments.report.page.document import HERE as REPORT  # its charts take a second to import
    from experiments.report.page.document import script_hash

    scripts = (REPORT / "dom.js", REPORT / "tokens.js", HERE / "live.js")  # in this order
    script = "\n".join(['"use strict";', *(path.read_text(encoding="utf-8") for path in scripts)])
    style = "\n".join(path.read_text(encoding="utf-8") for path in (REPORT / "page.css", HERE / "live.css"))
    policy = (
        f"default-src 'none'; script-src {script_hash(script)}; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    template = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return template.get_template("live.html").render(style=Markup(style), script=Markup(script)), policy


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
    log: Path | None = None,
) -> None:
    """Serve until interrupted; `thresholds` replace the dials' own and those by category, `report` prints a line."""
    if at_thought := [dial.kind for dial in dials if dial.read is not None and dial.read.position == THOUGHT_END]:
        raise UserError(f"the {at_thought[0]} dial reads at the thought's end; such dials answer in refusal generate")
    placed = with_thresholds(dials, thresholds)
    served = ServedModel(name or Path(model.name).name, int(time.time()), model.fingerprint()[:12])
    engine = make_engine(placed)
    app = create_app(engine, served, limits, address.api_key, address.allowed_hosts, ui=ui, log=log, say=report)
    with address.listen() as listening:
        shown = ", ".join(f"{dial.kind} {dial.threshold:.3f}" for dial in placed) or "none"
        url = f"http://{address.url_host}:{listening.getsockname()[1]}"
        only = "; they alarm only" if any(dial.answer_limit is not None for dial in placed) else ""
        report(f"serving {served.name} at {url}/v1 (dials: {shown}{only}); stop with Ctrl-C")
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
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
        config.timeout_graceful_shutdown = 2 * GRACE_S  # and no log has prompts
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        async def close_engine() -> None:
            await asyncio.sleep(GRACE_S)
            await asyncio.to_thread(self._engine.close)

        closing = asyncio.create_task(close_engine())
        await super().shutdown(sockets)
        closing.cancel()
