"""One background thread for copies off the device and writes to disk during the forward pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from extract.errors import UserError


class BackgroundError(Exception):
    """Background work failed; a class of its own, so that it is not taken for an error of the forward pass."""


class BackgroundThread:
    """A background thread that does pieces of work in order; an error in it is raised at the next call.

    After an error nothing more is done: later pieces build on earlier ones.
    """

    def __init__(self, ahead: int = 4) -> None:
        self._ahead = ahead  # pieces that may wait, so that memory stays bounded
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="refusal-extract")
        self._waiting: deque[Future[Any]] = deque()
        self._error: Exception | None = None

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Hand over a piece of work, whose result can be awaited; waits while too much is waiting."""
        while len(self._waiting) >= self._ahead:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._do, work, arguments))
        return self._waiting[-1]

    def finish(self) -> None:
        """Wait until everything handed over is done."""
        while self._waiting:
            self._waiting.popleft().result()

    def _do(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._error is not None:
            raise self._error
        try:
            return work(*arguments)
        except UserError as error:
            self._error = error
            raise
        except BaseException as error:
            self._error = BackgroundError(f"in the background thread: {error!r}")
            raise self._error from error

    def __enter__(self) -> BackgroundThread:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=True)  # also after Ctrl-C: what has been computed is still written
        if kind is None:
            self.finish()
