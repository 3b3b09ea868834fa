"""Progress bars with rate and time left, and notes, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Advance = Callable[[int], None]


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
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if self.quiet or (total is None and not console.is_terminal):
            yield lambda steps: None
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

            def advance(steps: int) -> None:
                progress.advance(task, steps)
                speed = progress.tasks[0].speed
                progress.update(task, rate=f"{speed:.1f}/s" if speed else "")

            yield advance
