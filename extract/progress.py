"""Progress bars with rate and time left, and notes: on standard error, or below a notebook's cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

Advance = Callable[[int], None]
NOTEBOOK_INTERVAL_S = 0.2
LINE_INTERVAL_S = 30.0  # in a file or a pipe


@dataclass(frozen=True)
class Reporter:
    """Shows progress bars and notes; `quiet` shows nothing."""

    quiet: bool = False

    def say(self, line: str) -> None:
        """Tell the user something a bar cannot, on a line of its own."""
        if not self.quiet:
            from rich.console import Console

            Console(stderr=True, highlight=False).print("Note: " + line, markup=False, soft_wrap=True)

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
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if self.quiet:
            yield lambda steps: None
            return
        if not console.is_terminal:
            yield _lines(description, total)
            return
        columns = (
            TextColumn("{task.description:<36}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>7}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(description, total=total, rate="")

            def advance_bar(steps: int) -> None:
                progress.advance(task, steps)
                speed = progress.tasks[0].speed
                progress.update(task, rate=f"{speed:.1f}/s" if speed else "")

            yield advance_bar


def _lines(description: str, total: int | None) -> Advance:
    """Return what writes a line at the end, and one every half minute before it: a log cannot redraw a bar."""
    began = written = time.monotonic()
    done = 0

    def advance(steps: int) -> None:
        nonlocal done, written
        done += steps
        now = time.monotonic()
        if steps and (done == total or now - written > LINE_INTERVAL_S):
            written = now
            print(f"{description:<36} {_counts(done, total, now - began)}", file=sys.stderr, flush=True)

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
    done = 0
    handle = display(HTML(_bar(description, 0, total, 0.0)), display_id=True)

    def advance(steps: int) -> None:
        nonlocal done, shown
        done += steps
        if time.monotonic() - shown > NOTEBOOK_INTERVAL_S:
            shown = time.monotonic()
            handle.update(HTML(_bar(description, done, total, shown - began)))

    try:
        yield advance
    finally:
        handle.update({"text/plain": "", "text/html": ""}, raw=True)


def _bar(description: str, done: int, total: int | None, seconds: float) -> str:
    bar = f'<progress value="{done}" max="{total}"></progress>' if total else "<progress></progress>"
    return f"{escape(description)} {bar} {_counts(done, total, seconds)}"


def _counts(done: int, total: int | None, seconds: float) -> str:
    """Return what is done of how much, the rate and the time left (at the end: taken), as far as they are known."""
    counts = f"{done}/{total}" if total else str(done)
    rate = f", {done / seconds:.1f}/s" if seconds and done else ""
    if done == total:
        return f"{counts}{rate}, {seconds:.0f} s"
    left = f", {(total - done) * seconds / done:.0f} s left" if total and done and seconds else ""
    return counts + rate + left
