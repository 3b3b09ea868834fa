"""A line every half minute while nothing else is printed, so that long work is never silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL_S = 30.0


class Heartbeat:
    """Prints how long something has been running, where `beat` was not called for an interval.

    Args:
        what: what is running, at the head of each line.
        write: prints one line.
        interval: seconds.
    """

    def __init__(self, what: str, write: Callable[[str], None], interval: float = INTERVAL_S) -> None:
        self._what, self._write, self._interval = what, write, interval
        self._began = self._heard = time.monotonic()
        self._bars = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="refusal-heartbeat", daemon=True)

    def beat(self) -> None:
        """Record that something was printed."""
        self._heard = time.monotonic()

    @contextmanager
    def bar(self) -> Iterator[None]:
        """Print nothing during the block: a bar is on the screen."""
        self._bars += 1
        try:
            yield
        finally:
            self._bars -= 1
            self.beat()

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        wait = self._interval
        while not self._ended.wait(wait):
            now = time.monotonic()
            if self._bars or now - self._heard < self._interval:
                wait = max(0.01, self._interval - (now - self._heard) if not self._bars else self._interval)
                continue
            self._heard, wait = now, self._interval
            self._write(f"{self._what}: running for {now - self._began:.0f} s")
