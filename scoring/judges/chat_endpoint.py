"""Requests to an OpenAI-compatible endpoint: each returns a reply, or the kind of failure.

The openai client itself waits and retries after 429 (with its Retry-After), 5xx, timeouts and lost connections. Errors
that no retry can fix (a refused key, an unknown model, no server at the address) stop the run with one line.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from extract.errors import UserError, shortened
from scoring.judges import RefusedBy
from scoring.judges.config import Connection
from scoring.judges.structured_refusal import is_filtered, structured_refusal

T = TypeVar("T")
R = TypeVar("R")
Message = dict[str, str]
Question = Sequence[Message] | str  # messages of a chat, or a text to complete
CONNECT_S = 10.0
FILTERED = "content_filter"  # the kind of failure where a filter refused the request


class UnreadableError(ValueError):
    """The reply cannot be used; the message gives the reason."""


class RequestFailedError(Exception):
    """A request that failed after its retries; failures are counted by `kind`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Reply:
    """A model's reply; token counts are None where they are not known."""

    text: str
    cut_off: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    by: RefusedBy | None = None  # of a refusal reported outside the text, whose words are then the text


class ChatEndpoint:
    """A thread-safe client of one model behind an endpoint; without its key, a UserError."""

    def __init__(self, config: Connection) -> None:
        import openai  # an extra; everything else works without it

        self.config, self._openai = config, openai
        self.requests = 0  # sent, including the client's retries
        self.json_mode = config.json_mode  # until the server refuses it
        self._json_works = self._reached = False
        self._lock = threading.Lock()
        self._client = openai.OpenAI(
            base_url=config.base_url,
            api_key=_key(config),
            timeout=config.timeout_s,
            max_retries=config.retries,
            http_client=openai.DefaultHttpxClient(event_hooks={"request": [self._count]}),
        )

    def reply(self, asked: Question) -> Reply:
        """Return the model's reply; raise RequestFailedError, UnreadableError, or UserError where none can succeed."""
        if not self._reached:
            self._reach()
        try:
            answer = self._post_with_json_mode(asked)
        except self._openai.APIStatusError as error:
            self._reached = True
            raise self._explained(error) from None
        except self._openai.APITimeoutError:
            raise RequestFailedError("timeout", f"no answer within {self.config.timeout_s:g} s") from None
        except self._openai.APIConnectionError as error:
            if not self._reached:
                raise self._unreachable(error.__cause__ or error) from None
            raise RequestFailedError("connection", _line(error.__cause__ or error)) from None
        self._reached = True
        return _read(answer)

    def _post_with_json_mode(self, asked: Question) -> str:
        """Post with JSON mode if configured; if the server refuses JSON mode, post again without it."""
        wanted = self.json_mode
        try:
            answer = self._post(asked, wanted)
        except (self._openai.BadRequestError, self._openai.UnprocessableEntityError):
            if not wanted or self._json_works:
                raise
            answer = self._post(asked, False)  # fails again if JSON mode was not the reason
            self.json_mode = False
        else:
            self._json_works |= wanted
        return answer

    def _post(self, asked: Question, json_mode: bool) -> str:
        config = self.config
        sent = config.model_dump(include={"model", "temperature", "max_tokens", "seed"}, exclude_none=True)
        sent["extra_body"] = config.extra_body or None
        if isinstance(asked, str):
            return str(self._client.completions.with_raw_response.create(prompt=asked, **sent).http_response.text)
        if json_mode:
            sent["response_format"] = {"type": "json_object"}
        create = self._client.chat.completions.with_raw_response.create
        return str(create(messages=list(asked), **sent).http_response.text)

    def _count(self, _request: object) -> None:
        with self._lock:
            self.requests += 1

    def _reach(self) -> None:
        """Check that the server accepts connections; the client would report this only after all its retries."""
        url = urlsplit(self.config.base_url)
        proxies = urllib.request.getproxies()
        if (url.scheme in proxies or "all" in proxies) and not urllib.request.proxy_bypass(url.hostname or ""):
            return
        try:
            port = url.port or {"http": 80, "https": 443}[url.scheme]
            socket.create_connection((url.hostname, port), timeout=min(CONNECT_S, self.config.timeout_s)).close()
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: BaseException) -> UserError:
        reason = getattr(error, "strerror", None) or _line(error)
        remedy = "check base_url, and that the server runs"
        return UserError(f"the endpoint {self.config.base_url} cannot be reached ({reason}): {remedy}")

    def _explained(self, error: Any) -> Exception:
        """Return the error: fatal, or of one request. At 401 it omits the server's text, which may hold a key."""
        status, config, where = int(error.status_code), self.config, f"the endpoint {self.config.base_url}"
        if is_filtered({"error": error.body}):
            return RequestFailedError(FILTERED, _line(error))
        if status in (401, 403):
            key = f"the key in {config.api_key_env}" if config.api_key_env else "a request without a key (api_key_env)"
            remedy = f"check the key, and that it may use {config.model}"
            return UserError(f"{where} refused {key} ({status}): {remedy}")
        if status == 404:
            remedy = "check model, and that base_url is complete (it usually ends in /v1)"
            return UserError(f"{where} knows no model {config.model!r} (404): {remedy}")
        kind = "rate_limited" if status == 429 else "server_error" if status >= 500 else f"status_{status}"
        return RequestFailedError(kind, _line(error))


def concurrently(call: Callable[[T], R], items: Iterable[T], workers: int, ahead: int) -> Iterator[R]:
    """Yield the results of calls in order, reading `ahead` items for each worker; where one fails, the rest is dropped.

    The first call is alone: it shows whether any can succeed, and whether JSON mode works.
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for i, item in enumerate(items):
                waiting.append(pool.submit(call, item))
                while waiting and (i == 0 or waiting[0].done() or len(waiting) > ahead * workers):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _key(config: Connection) -> str:
    if config.api_key_env is None:
        return "none"  # set explicitly: else the client would send OPENAI_API_KEY to this server
    key, variable = os.environ.get(config.api_key_env, "").strip(), f"environment variable {config.api_key_env}"
    if not key:
        remedy = "put the endpoint's key into it, or set api_key_env to null for a server that needs none"
        raise UserError(f"{variable} is not set: {remedy}")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{variable} holds characters that are not valid in a key")
    return key


def _read(answer: str) -> Reply:
    try:
        body = json.loads(answer)
        choice, usage = body["choices"][0], body.get("usage") or {}
        message = choice["message"] if "message" in choice else {"content": choice["text"]}  # of a text completed
        content, ended = message.get("content"), choice.get("finish_reason")
        refusal = structured_refusal(content, (message, choice))
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(f"the response is not a chat completion: {answer[:80]!r}") from None
    given, written = [count if isinstance(count, int) else None for count in counts]
    by, text = refusal or (None, content if isinstance(content, str) else "")
    return Reply(text, ended == "length", given, written, by)


def _line(error: BaseException) -> str:
    return shortened(" ".join(str(error).split()) or type(error).__name__)
