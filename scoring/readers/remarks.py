"""What was amiss in a file of completions, and read all the same: counted, to be told and written down."""

from __future__ import annotations

from dataclasses import dataclass

from extract.prompts.lines import Mending


@dataclass
class Remarks:
    """Counts of rows. Of a JSON file, which has no rows before it is read, lines with broken bytes are counted."""

    windows_1252: int = 0  # held bytes that are not UTF-8, which were read as Windows-1252
    replaced: int = 0  # held what is no character in any way, which became U+FFFD
    other_filters: int = 0  # gave the same responses a second time, under another filter, and were left out

    def mended(self, how: Mending) -> None:
        """Count a row in which something was mended."""
        setattr(self, how, getattr(self, how) + 1)

    def counts(self) -> dict[str, int]:
        """Return what is to be told, with the number of rows."""
        return {
            "not UTF-8, read as Windows-1252 (--encoding names another)": self.windows_1252,
            "with characters that are no valid Unicode, replaced": self.replaced,
            "the same responses under another filter, left out": self.other_filters,
        }
