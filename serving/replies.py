"""Replies and errors in the format of OpenAI's chat completions; each choice also has the dials' readings."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from probes.direction import Locus
from serving.choice import Finish, TokenReading
from serving.request_schema import describe_error
from steering.dial import Kind
from steering.gates import Reading

LOG = logging.getLogger("refusal.serve")
TYPES = {401: "authentication_error", 429: "rate_limit_error"}
Thought = Annotated[str | None, Field(exclude_if=lambda thought: thought is None)]  # between the marks
Readings = dict[Kind, Reading]  # a gate that is overruled is not applied, since the normative dial declined


class AssistantMessage(BaseModel):
    """The assistant's message."""

    role: Literal["assistant"] = "assistant"
    content: str  # empty where the reply ends within its thought
    reasoning_content: Thought = None
    refusal: None = None


class WholeChoice(BaseModel):
    """One answer to the conversation."""

    index: int
    message: AssistantMessage
    finish_reason: Finish
    logprobs: None = None
    token_readings: tuple[TokenReading, ...] | None = None  # where the request asks for them
    dials: Readings


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ReplyHead(BaseModel):
    """What every reply to one request begins with."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class ChatCompletion(ReplyHead):
    """The reply of POST /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[WholeChoice]
    usage: Usage


class Delta(BaseModel):
    """The new part of a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: Thought = None


class ChunkChoice(BaseModel):
    """The new part of one choice; `dials` are in its first and its last chunk, `token_readings` in its last."""

    index: int
    delta: Delta
    finish_reason: Finish | None = None
    logprobs: None = None
    dials: Readings | None = None
    token_readings: tuple[TokenReading, ...] | None = None


class Chunk(ReplyHead):
    """One event of a stream."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChunkChoice]
    usage: Usage | None = None


class DialDefault(BaseModel, from_attributes=True):
    """A dial's default threshold, for requests that set none, and where it reads."""

    threshold: float
    band: float  # it leaves the model alone where its probability is nearer to the threshold than this
    read: Locus | None  # null: it reads the probability of its onset prefixes
    category_thresholds: dict[str, float] = {}  # of the categories that have their own
    answer_limit: float | None = None  # log-odds above which a token of an answer alarms; the dial then writes nothing


class ModelCard(BaseModel):
    """The served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "refusal-probes"
    dials: dict[Kind, DialDefault]


class ModelList(BaseModel):
    """The reply of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(BaseModel):
    """The reply of GET /health."""

    status: Literal["ok"] = "ok"
    model: str
    waiting: int
    decoding: int


class Index(BaseModel):
    """The reply of GET /: what is served, and where."""

    model: str
    about: str = "OpenAI-compatible chat completions with a normative and an epistemic threshold (refusal serve)"
    endpoints: dict[str, str] = {
        "POST /v1/chat/completions": "answer a conversation",
        "GET /v1/models": "the model and its dials' default thresholds",
        "GET /metrics": "what the dials read and decided, for Prometheus",
        "GET /watch": "the same against their certification prompts, as JSON",
        "GET /health": "waiting and decoding answers",
        "GET /docs": "every field of a request",
    }


class ErrorDetail(BaseModel):
    """An error; `param` names the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every error reply."""

    error: ErrorDetail


class ApiError(Exception):
    """An error reply: HTTP status, message, and the wrong field in `param`."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.status: int = status
        self.detail: ErrorDetail = ErrorDetail(message=message, type=kind, param=param, code=code)

    def response(self) -> Response:
        headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
        return Response(self.body(), self.status, headers.get(self.status), "application/json")

    def body(self) -> str:
        """Return the error as JSON in ASCII, since a message may quote half of a surrogate pair."""
        return ErrorBody(error=self.detail).model_dump_json(ensure_ascii=True)


def add_error_handlers(app: FastAPI) -> None:
    """Return every error in the same format."""

    @app.exception_handler(ApiError)
    async def known(_request: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        param, message = describe_error(list(error.errors()))
        return ApiError(400, message, param).response()

    @app.exception_handler(HTTPException)
    async def refused(_request: Request, error: HTTPException) -> Response:
        param = "body" if error.status_code in (400, 408, 413) else None
        response = ApiError(error.status_code, str(error.detail), param).response()
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, error: Exception) -> Response:
        LOG.error("a request failed", exc_info=error)
        return ApiError(500, "internal server error; see the server's log").response()
