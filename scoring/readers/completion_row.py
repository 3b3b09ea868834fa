"""One row of a completions file before the column map is applied, and counts of repaired rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from extract.prompts.prompt import OPTIONAL, Prompt
from extract.prompts.rows import EncodingRepair
from scoring.row import Row

PROMPT_FIELDS = ("label", "right_action", "epistemic_kind", "group", *OPTIONAL)
REFUSED = ("refusal", "finish_reason")  # report a refusal outside the completion
FIELDS = ("id", "sample", "text", "messages", "completion", *PROMPT_FIELDS, *REFUSED)


@dataclass(frozen=True)
class ForeignRow:
    """A row: `columns` under the file's names, and `fields` that its format maps to ours."""

    place: str
    columns: Row
    fields: Row


@dataclass
class ReadingNotes:
    """Numbers of rows that were repaired or left out. In a JSON file, lines with invalid bytes are counted."""

    windows_1252: int = 0  # with bytes that are not UTF-8, read as Windows-1252
    replaced: int = 0  # with invalid characters, replaced by U+FFFD
    other_filters: int = 0  # same responses under another lm-eval filter, left out
    guessed: Counter[str] = field(default_factory=Counter)  # with a field whose column was guessed, by guess

    def mended(self, how: EncodingRepair) -> None:
        """Count a repaired row."""
        setattr(self, how, getattr(self, how) + 1)

    def counts(self) -> dict[str, int]:
        """Return the number of rows by kind of repair (a text for the scorecard)."""
        return {
            "not UTF-8, read as Windows-1252 (--encoding names another)": self.windows_1252,
            "with characters that are no valid Unicode, replaced": self.replaced,
            "the same responses under another filter, left out": self.other_filters,
            **self.guessed,
        }


def attributes_of(prompt: Prompt, group: str) -> Row:
    """Return the fields of a prompt that `prompt_fields` reads back from another tool's log."""
    known = {name: getattr(prompt, name, None) for name in PROMPT_FIELDS} | {"group": group}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items() if value}


def prompt_fields(attributes: object) -> Row:
    """Return the attributes of another tool's prompt that have our field names and are text, numbers or lists."""
    held = attributes if isinstance(attributes, Mapping) else {}
    return {
        name: held[name]
        for name in PROMPT_FIELDS
        if isinstance(held.get(name), str | int | float) or (name == "acceptable" and isinstance(held.get(name), list))
    }
