"""Texts an answer ends before: what could become one is held back while the answer streams. Text in, text out."""

from __future__ import annotations

from collections.abc import Sequence


class StopSequences:
    """Passes pieces of a text on, up to the first stop.

    Args:
        stops: none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met = False

    def push(self, piece: str) -> str:
        """Take the next piece; return what can be told."""
        if self.met:
            return ""
        text = self._held + piece
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.met, self._held = True, ""
            return text[: min(found)]
        kept = max((self._begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> str:
        """Return what was held back, once the text is at its end."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Return how much of a stop the text ends with."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
