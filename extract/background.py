"""Work beside the forward pass: a thread for copies and disk writes, and a process whose memory is given back."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from extract.errors import UserError

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def call_in_subprocess(function: Callable[Given, Returned], *args: Given.args, **kwargs: Given.kwargs) -> Returned:
    """Call a module's function in a new process; arguments, result and errors are pickled."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *args, **kwargs).result()


class BackgroundError(Exception):
    """An error in the background thread; a separate class, to tell it apart from errors of the forward pass."""


class BackgroundThread:
    """Runs tasks in order, at most `ahead` waiting; an error is raised at the next call and no further one runs."""

    def __init__(self, ahead: int = 4) -> None:
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="refusal-extract")
        self._waiting: deque[Future[Any]] = deque()
        self._error: Exception | None = None

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Add a task and return its future; blocks while too many tasks are waiting."""
        while len(self._waiting) >= self._ahead:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._do, work, arguments))
        return self._waiting[-1]

    def finish(self) -> None:
        """Wait until all tasks are done."""
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
        self._pool.shutdown(wait=True)  # also after Ctrl-C: computed results are still written
        if kind is None:
            self.finish()
