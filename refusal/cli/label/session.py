"""One person labels the completions of a draw: one key for each, undo, skip and quit. Each label is saved at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console

from extract.errors import UserError
from refusal.cli.label.keys import END
from refusal.cli.label.screen import ACTION_OF_KEY, MORE, QUIT, SKIP, UNDO, show
from scoring.labelling.draw import Draw, DrawnRow
from scoring.labelling.label_file import LabelFile
from scoring.labels.label import Key, Label

DONE = "All completions of the draw are labelled. u undoes the last label; any other key ends."


class LabellingSession:
    """The completions that an annotator has not labelled yet, and what they do with each."""

    def __init__(self, draw: Draw, file: LabelFile, annotator: str) -> None:
        self._draw, self._file, self._annotator = draw, file, annotator
        self._rows: dict[Key, DrawnRow] = {row.key: row for row in draw.rows}
        done = file.of(annotator)
        self._left = deque(row for row in draw.rows if row.key not in done)

    def run(self, console: Console, read_key: Callable[[], str]) -> None:
        """Show completions until all are labelled or the person quits (q, Ctrl-C, Ctrl-D, or a closed terminal)."""
        cut, note = True, ""
        with suppress(EOFError):
            while self._left:
                show(console, self._left[0], self._progress(), cut=cut, note=note)
                key = read_key().lower()
                if key in (QUIT, *END):
                    return
                cut, note = key != MORE, self._take(key)
                if not self._left:
                    console.print(DONE)
                    if read_key().lower() == UNDO:
                        note = self._undo()

    def _take(self, key: str) -> str:
        """Do what a key says; return a note for the next screen."""
        if key in ACTION_OF_KEY:
            row = self._left[0]
            self._file.add(
                Label(
                    id=row.id,
                    sample=row.sample,
                    action=ACTION_OF_KEY[key],
                    annotator=self._annotator,
                    inclusion=row.inclusion,
                    seed=self._draw.seed,
                )
            )
            self._left.popleft()
            return ""
        if key == SKIP:
            self._left.rotate(-1)
            return "skipped: it comes again after the others"
        if key == UNDO:
            return self._undo()
        return "" if key == MORE else f"no such key: {key!r}"

    def _undo(self) -> str:
        try:
            label = self._file.undo()
        except UserError as error:
            return str(error)
        if label is None:
            return "there is no label of this session to undo"
        self._left.appendleft(self._rows[label.key])
        return f"undone: {label.action}"

    def _progress(self) -> str:
        done = len(self._rows) - len(self._left)
        return f"{self._annotator}: {done} of {len(self._rows)} labelled"
