"""Problems of the completions that were read, counted for the scorecard."""

from __future__ import annotations

from dataclasses import dataclass, field

from scoring.readers.completion_row import ReadingNotes
from scoring.scorecard_record import InputNote

NAMED = 5  # how many of the ids at fault are named


@dataclass
class InputNotes:
    """Problems of the input: each is counted and its first few ids are named; no completion is dropped."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[str]] = field(default_factory=dict)

    def note(self, what: str, identifier: str) -> None:
        """Count a problem of one completion or prompt."""
        self.counts[what] = self.counts.get(what, 0) + 1
        named = self.first.setdefault(what, [])
        if len(named) < NAMED:
            named.append(identifier)

    def record(self, notes: ReadingNotes | None = None) -> dict[str, InputNote]:
        """Return each count with the first ids, and the repairs made while reading."""
        noted = {what: InputNote(n=n, first=tuple(self.first[what])) for what, n in self.counts.items()}
        mended = {} if notes is None else notes.counts()
        return noted | {what: InputNote(n=n, first=()) for what, n in mended.items() if n}
