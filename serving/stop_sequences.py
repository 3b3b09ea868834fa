"""Stop sequences: ends a streamed text before the first of them, and holds back text that may become one."""

from __future__ import annotations

from collections.abc import Sequence


class StopSequences:
    """Passes on pieces of a text up to the first stop sequence.

    Args:
        stops: stop sequences, none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met = False

    def push(self, piece: str) -> str:
        """Add the next piece; return the text that can be sent."""
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
        """Return the text held back, at the end of the text."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Return the number of a stop sequence's first characters that the text ends with."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
