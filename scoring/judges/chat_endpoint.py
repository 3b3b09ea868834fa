"""One question to an OpenAI-compatible endpoint: its reply, or the kind of failure.

Waiting and asking again after 429 (with its Retry-After), 5xx, timeouts and lost connections is the openai client's
own. What no further request could mend (a refused key, an unknown model, nobody listening) stops the run in one line.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from extract.errors import UserError
from scoring.judges.config import EndpointConfig
from scoring.judges.replies import UnreadableError

try:
    import openai
except ImportError:  # reported when an endpoint is opened; all else works without it
    openai = None

Message = dict[str, str]
CONNECT_S = 10.0


class RequestFailedError(Exception):
    """A request that failed for good; `kind` is what is counted."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Reply:
    """What the model said; tokens are None where the server does not count them."""

    text: str
    cut_off: bool
    input_tokens: int | None
    output_tokens: int | None


class ChatEndpoint:
    """A model behind an endpoint, for several threads.

    Raises:
        UserError: the openai package or the key is not there.
    """

    def __init__(self, config: EndpointConfig) -> None:
        if openai is None:
            raise UserError("the endpoint judge needs the openai package: pip install 'refusal-probes[judge]'")
        self.config = config
        self.requests = 0  # sent, the client's own retries included
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

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Return the model's reply.

        Raises:
            RequestFailedError: the request failed, and so did its repetitions.
            UnreadableError: the answer is no chat completion.
            UserError: no request can succeed.
        """
        if not self._reached:
            self._reach()
        try:
            answer = self._post_as_it_takes(messages)
        except openai.APIStatusError as error:
            self._reached = True
            raise self._explained(error) from None
        except openai.APITimeoutError:
            raise RequestFailedError("timeout", f"no answer within {self.config.timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            if not self._reached:
                raise self._unreachable(error.__cause__ or error) from None
            raise RequestFailedError("connection", _line(error.__cause__ or error)) from None
        self._reached = True
        return _read(answer)

    def _post_as_it_takes(self, messages: Sequence[Message]) -> str:
        """Post with JSON mode if wanted; once without, where the server refuses that."""
        wanted = self.json_mode
        try:
            answer = self._post(messages, wanted)
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            if not wanted or self._json_works:
                raise
            answer = self._post(messages, False)  # fails alike if JSON mode was not the reason
            self.json_mode = False
        else:
            self._json_works = self._json_works or wanted
        return answer

    def _post(self, messages: Sequence[Message], json_mode: bool) -> str:
        config = self.config
        given = {"temperature": config.temperature, "max_tokens": config.max_tokens, "seed": config.seed}
        sent = {name: value for name, value in given.items() if value is not None}
        mode = {"response_format": {"type": "json_object"}} if json_mode else {}
        create = self._client.chat.completions.with_raw_response.create
        answer = create(
            model=config.model, messages=list(messages), extra_body=config.extra_body or None, **sent, **mode
        )
        return str(answer.http_response.text)

    def _count(self, _request: object) -> None:
        with self._lock:
            self.requests += 1

    def _reach(self) -> None:
        """See that somebody listens, which the client would say only after all its retries."""
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
        return UserError(f"the endpoint {self.config.base_url} cannot be reached ({reason}): check base_url, and that "
                         "the server runs")  # fmt: skip

    def _explained(self, error: Any) -> Exception:
        """Tell what stops the run from what fails one request; the server's words may repeat a key, so not at 401."""
        status, config = int(error.status_code), self.config
        if status in (401, 403):
            key = f"the key in {config.api_key_env}" if config.api_key_env else "a request without a key (api_key_env)"
            return UserError(f"the endpoint {config.base_url} refused {key} ({status}): check it, and that it may use "
                             f"{config.model}")  # fmt: skip
        if status == 404:
            return UserError(f"the endpoint {config.base_url} knows no model {config.model!r} (404): check model, and "
                             "that base_url ends as the server's documentation says, mostly in /v1")  # fmt: skip
        kind = "rate_limited" if status == 429 else "server_error" if status >= 500 else f"status_{status}"
        return RequestFailedError(kind, _line(error))


def _key(config: EndpointConfig) -> str:
    if config.api_key_env is None:
        return "none"  # given, or the client would send whatever OPENAI_API_KEY holds to this server
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise UserError(f"environment variable {config.api_key_env} is not set: put the endpoint's key there, or set "
                        "api_key_env to null for a server that needs none")  # fmt: skip
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"environment variable {config.api_key_env} holds characters that no key has")
    return key


def _read(answer: str) -> Reply:
    try:
        body = json.loads(answer)
        choice, usage = body["choices"][0], body.get("usage") or {}
        said, ended = choice["message"].get("content"), choice.get("finish_reason")
        tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UnreadableError(f"the answer is no chat completion: {answer[:80]!r}") from None
    counted = [number if isinstance(number, int) else None for number in tokens]
    return Reply(said if isinstance(said, str) else "", ended == "length", *counted)


def _line(error: BaseException) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 200 else words[:199] + "…"
