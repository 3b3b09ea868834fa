"""Errors in OpenAI's format, with the name of the wrong field; internal details go only to the log."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from serving.replies import ErrorBody, ErrorDetail
from serving.request_schema import describe_error

LOG = logging.getLogger("refusal.serve")
TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An error reply: HTTP status, message, and the wrong field in `param`."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.status, self.detail = status, ErrorDetail(message=message, type=kind, param=param, code=code)

    def response(self) -> Response:
        """Return the HTTP response."""
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
