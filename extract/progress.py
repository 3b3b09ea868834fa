"""Progress bars with rate and time left, and notes: on standard error, or below a notebook's cell."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Protocol

INTERVAL_S = 30.0
NOTEBOOK_INTERVAL_S = 0.2
LOOKS = 30  # of a heartbeat in an interval
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
    started: float = field(default_factory=time.monotonic)  # when the command began

    def say(self, line: str) -> None:
        """Print a note, on a line of its own."""
        self.log("Note: " + line)
        if not self.quiet:
            from rich.console import Console

            console = Console(stderr=True, highlight=False)
            console.print("Note: " + line, markup=False, soft_wrap=not console.is_terminal)  # between words
            self._beat()

    @contextmanager
    def stage(self, step: str) -> Iterator[Reporter]:
        """Yield the reporter of one stage, such as "3/13 respond": named in bars and lines, never silent for long."""

        def note(line: str) -> None:
            self.log(line)
            if self.verbose:
                _print(line)

        note(f"{step} begins")
        began = time.monotonic()
        with nullcontext() if self.quiet else Heartbeat(step, _print, INTERVAL_S) as pulse:
            yield replace(self, step=step, pulse=pulse)
        note(f"{step} done in {time.monotonic() - began:.1f} s")

    @contextmanager
    def task(self, description: str, total: int | None) -> Iterator[Advance]:
        """Show one bar; the block calls the yielded function with the number of steps just done."""
        if self.quiet:
            yield no_progress
            return
        if in_notebook():
            with _notebook_bar(description, total) as advance:
                yield advance
            return
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            named = self._named(description, True)

            def line(counts: _Counts) -> None:  # a log cannot redraw a bar
                _print(f"{named:<36} {counts.text}")
                self._beat()

            yield _Counts(total, INTERVAL_S, line)
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

    @contextmanager
    def counted(self, description: str, *, resumed: bool = False) -> Iterator[Callable[[int, int], None]]:
        """Yield a function of the steps done and all; its first call opens a bar, `resumed` from an earlier run."""
        with ExitStack() as stack:
            advance: Advance | None = None
            before = 0

            def progress(done: int, total: int) -> None:
                nonlocal advance, before
                remembered = resumed and advance is None
                advance = advance or stack.enter_context(self.task(description, total))
                advance(done - before, remembered=remembered)
                before = done

            yield progress

    def _named(self, description: str, whole: bool) -> str:
        """Return a description after the stage's place in the run, and its name where there is room."""
        place, _, name = self.step.partition(" ")
        return " ".join(filter(None, [place, f"{name}:" if name and whole else "", description]))

    def _beat(self) -> None:
        if self.pulse is not None:
            self.pulse.beat()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Counts:
    """Counts steps, and shows them at the end and not more often than once an interval before it (seconds)."""

    def __init__(self, total: int | None, interval: float, show: Callable[[_Counts], None]) -> None:
        self.done, self.total = 0, total
        self._remembered, self._interval, self._show = 0, interval, show
        self._began = self._shown = time.monotonic()

    def __call__(self, steps: int, *, remembered: bool = False) -> None:
        self.done += steps
        self._remembered += steps if remembered else 0
        now = time.monotonic()
        if steps and (self.done == self.total or now - self._shown > self._interval):
            self._shown = now
            self._show(self)

    @property
    def text(self) -> str:
        """What is done of how much, the rate and the time left (at the end: taken), as far as they are known."""
        done, total, seconds, worked = self.done, self.total, self._shown - self._began, self.done - self._remembered
        counts = f"{done}/{total}" if total else str(done)
        counts += f" ({self._remembered} remembered)" if self._remembered else ""
        rate = f", {worked / seconds:.1f}/s" if seconds and worked else ""
        if done == total:
            return f"{counts}{rate}, {seconds:.0f} s"
        left = f", {(total - done) * seconds / worked:.0f} s left" if total and worked and seconds else ""
        return counts + rate + left


def in_notebook() -> bool:
    """Say whether this process is a Jupyter kernel, which shows HTML below its cells."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and shell.has_trait("kernel") and shell.kernel is not None


@contextmanager
def _notebook_bar(description: str, total: int | None) -> Iterator[Advance]:
    """Show a bar below the cell, and remove it at the end. It needs no widgets, so that it shows in every notebook."""
    from IPython.display import HTML, display

    def html(counts: _Counts) -> Any:
        bar = f'<progress value="{counts.done}" max="{total}"></progress>' if total else "<progress></progress>"
        return HTML(f"{escape(description)} {bar} {counts.text}")

    counts = _Counts(total, NOTEBOOK_INTERVAL_S, lambda counts: handle.update(html(counts)))
    handle = display(html(counts), display_id=True)
    try:
        yield counts
    finally:
        handle.update({"text/plain": "", "text/html": ""}, raw=True)


class Heartbeat:
    """Prints how long `what` has been running, where `beat` was not called for an interval (seconds)."""

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
        while not self._ended.wait(self._interval / LOOKS):
            now = time.monotonic()
            if not self._bars and now - self._heard >= self._interval:
                self._heard = now
                self._write(f"{self._what}: running for {now - self._began:.0f} s")
