"""One completion as a file gives it, before a column map is applied; and counts of what was repaired in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extract.prompts.lines import EncodingRepair
from extract.prompts.prompt import OPTIONAL
from scoring.row import Row

PROMPT_FIELDS = ("label", "right_action", "epistemic_kind", *OPTIONAL)
FIELDS = ("id", "sample", "text", "messages", "completion", *PROMPT_FIELDS)


@dataclass(frozen=True)
class ForeignRow:
    """A row: all it has under its own names, and what of that its format declares to be our fields."""

    place: str
    columns: Row
    fields: Row


@dataclass
class ReadingNotes:
    """Numbers of rows that were repaired or left out. Of a JSON file, lines with broken bytes are counted."""

    windows_1252: int = 0  # held bytes that are not UTF-8, which were read as Windows-1252
    replaced: int = 0  # held what is no character in any way, which became U+FFFD
    other_filters: int = 0  # gave the same responses a second time, under another filter, and were left out

    def mended(self, how: EncodingRepair) -> None:
        """Count a row in which something was repaired."""
        setattr(self, how, getattr(self, how) + 1)

    def counts(self) -> dict[str, int]:
        """Return the number of rows by what happened to them, in words."""
        return {
            "not UTF-8, read as Windows-1252 (--encoding names another)": self.windows_1252,
            "with characters that are no valid Unicode, replaced": self.replaced,
            "the same responses under another filter, left out": self.other_filters,
        }


def prompt_fields(attributes: object) -> Row:
    """Return those of a prompt's attributes in another tool that have our names and are text, numbers or lists."""
    held = attributes if isinstance(attributes, Mapping) else {}
    return {
        name: held[name]
        for name in PROMPT_FIELDS
        if isinstance(held.get(name), str | int | float) or (name == "acceptable" and isinstance(held.get(name), list))
    }
