"""Progress bars with rate and time left, and notes: on standard error, or below a notebook's cell."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from html import escape
from typing import Protocol

NOTEBOOK_INTERVAL_S = 0.2
WIDE = 100  # columns of a terminal that has room for the name of the stage


class Advance(Protocol):
    """Reports steps that were just done; remembered ones took no time and do not count in the rate."""

    def __call__(self, steps: int, *, remembered: bool = False) -> None:
        """Report some steps."""


def no_progress(steps: int, *, remembered: bool = False) -> None:
    """Report nothing: an `Advance` for work that shows no bar."""


@dataclass(frozen=True)
class Reporter:
    """Shows progress bars and notes; `quiet` shows nothing, `verbose` also where a stage begins and ends."""

    quiet: bool = False
    verbose: bool = False
    step: str = ""  # the stage that runs now and its place in the run: "3/13 respond"
    log: Callable[[str], None] = lambda line: None  # also takes every note, and where stages begin and end
    pulse: Heartbeat | None = None

    def say(self, line: str) -> None:
        """Tell the user something a bar cannot, on a line of its own."""
        self.log("Note: " + line)
        if not self.quiet:
            from rich.console import Console

            Console(stderr=True, highlight=False).print("Note: " + line, markup=False, soft_wrap=True)
            self._beat()

    @contextmanager
    def stage(self, step: str) -> Iterator[Reporter]:
        """Yield the reporter of one stage: it names the stage in bars and lines, and is never silent for long.

        Args:
            step: its place in the run and its name, such as "3/13 respond".
        """
        self.log(f"{step} begins")
        if self.verbose:
            _print(f"{step} begins")
        began = time.monotonic()
        with nullcontext() if self.quiet else Heartbeat(step, _print, INTERVAL_S) as pulse:
            yield replace(self, step=step, pulse=pulse)
        took = f"{step} done in {time.monotonic() - began:.1f} s"
        self.log(took)
        if self.verbose:
            _print(took)

    @contextmanager
    def task(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show one bar; the block calls the yielded function with the number of steps just done.

        Args:
            total: the number of steps; None where it cannot be known beforehand.
        """
        if not self.quiet and in_notebook():
            with _notebook_bar(description, total) as advance:
                yield advance
            return
        if self.quiet:
            yield no_progress
            return
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            yield _lines(self._named(description, True), total, self._beat)
            return
        with self.pulse.bar() if self.pulse else nullcontext():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description:<36}"),
                BarColumn(bar_width=12),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:>7}"),
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            )
            with Progress(*columns, console=console) as progress:
                task = progress.add_task(self._named(description, console.width >= WIDE), total=total, rate="")

                def advance_bar(steps: int, *, remembered: bool = False) -> None:
                    if remembered:  # no sample of the speed
                        progress.tasks[0].completed += steps
                    progress.advance(task, 0 if remembered else steps)
                    speed = progress.tasks[0].speed
                    progress.update(task, rate=f"{speed:.1f}/s" if speed else "")

                yield advance_bar

    def _named(self, description: str, whole: bool) -> str:
        """Return a description after the stage's place in the run, and its name where there is room."""
        place, _, name = self.step.partition(" ")
        return " ".join(filter(None, [place, f"{name}:" if name and whole else "", description]))

    def _beat(self) -> None:
        if self.pulse is not None:
            self.pulse.beat()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _lines(description: str, total: int | None, beat: Callable[[], None]) -> Advance:
    """Return what writes a line at the end, and one every half minute before it: a log cannot redraw a bar."""
    began = written = time.monotonic()
    done = known = 0

    def advance(steps: int, *, remembered: bool = False) -> None:
        nonlocal done, known, written
        done += steps
        known += steps if remembered else 0
        now = time.monotonic()
        if steps and (done == total or now - written > INTERVAL_S):
            written = now
            _print(f"{description:<36} {_counts(done, total, now - began, known)}")
            beat()

    return advance


def in_notebook() -> bool:
    """Say whether this process is a Jupyter kernel, which shows HTML below its cells."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and shell.has_trait("kernel") and shell.kernel is not None


@contextmanager
def _notebook_bar(description: str, total: int | None) -> Iterator[Advance]:
    """Show a bar below the cell, and remove it at the end. It needs no widgets, so that it shows in every notebook."""
    from IPython.display import HTML, display

    began = shown = time.monotonic()
    done = known = 0
    handle = display(HTML(_bar(description, 0, total, 0.0)), display_id=True)

    def advance(steps: int, *, remembered: bool = False) -> None:
        nonlocal done, known, shown
        done += steps
        known += steps if remembered else 0
        if time.monotonic() - shown > NOTEBOOK_INTERVAL_S:
            shown = time.monotonic()
            handle.update(HTML(_bar(description, done, total, shown - began, known)))

    try:
        yield advance
    finally:
        handle.update({"text/plain": "", "text/html": ""}, raw=True)


def _bar(description: str, done: int, total: int | None, seconds: float, remembered: int = 0) -> str:
    bar = f'<progress value="{done}" max="{total}"></progress>' if total else "<progress></progress>"
    return f"{escape(description)} {bar} {_counts(done, total, seconds, remembered)}"


def _counts(done: int, total: int | None, seconds: float, remembered: int = 0) -> str:
    """Return what is done of how much, the rate and the time left (at the end: taken), as far as they are known."""
    counts, worked = f"{done}/{total}" if total else str(done), done - remembered
    counts += f" ({remembered} remembered)" if remembered else ""
    rate = f", {worked / seconds:.1f}/s" if seconds and worked else ""
    if done == total:
        return f"{counts}{rate}, {seconds:.0f} s"
    left = f", {(total - done) * seconds / worked:.0f} s left" if total and worked and seconds else ""
    return counts + rate + left


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
