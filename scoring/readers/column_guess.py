"""Guesses which columns hold the id, the prompt and the completion, from the usual names of such columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from extract.prompts.columns import Column
from scoring.readers.column_map import ColumnMap
from scoring.readers.completion_row import FIELDS, REFUSED, ForeignRow
from scoring.row import Row

ROWS = 100  # read for a guess
# lower case, with _ for spaces and hyphens; `answer` is not among them, since it is the known answer of a prompt
USUAL = {
    "id": ("prompt_id", "question_id", "example_id", "idx", "index", "uid"),
    "text": ("prompt", "question", "instruction", "input", "query", "request", "user_prompt"),
    "completion": (
        "response",
        "output",
        "generation",
        "generated_text",
        "model_output",
        "model_response",
        "model_answer",
        "prediction",
        "reply",
    ),
}


@dataclass(frozen=True)
class Guess:
    """The column of each guessed field, and whether the rows are numbered because no column can hold an id."""

    columns: dict[str, str] = field(default_factory=dict)
    numbered: bool = False

    def over(self, given: ColumnMap) -> ColumnMap:
        """Return a map with the guessed columns too."""
        guessed = {name: Column(column=column) for name, column in self.columns.items()}
        return given.model_copy(update={"columns": guessed | given.columns})

    def complete(self, fields: Row, number: int) -> Row:
        """Return the fields of a row, with an id from its number if rows are numbered."""
        return {**fields, "id": f"row {number}"} if self.numbered else fields

    def lines(self) -> list[str]:
        """Return what was guessed and how to say otherwise, for the scorecard."""
        lines = [
            f"read from column {column!r} as {name!r}, by its name (--map {name}=COLUMN names another)"
            for name, column in self.columns.items()
        ]
        return lines + ["numbered, because no column is called 'id' (--map id=COLUMN names one)"] * self.numbered


def guess_columns(rows: Iterable[ForeignRow], given: ColumnMap) -> Guess:
    """Guess the columns of fields that no row and no map has.

    A column is guessed only if it alone has a usual name, or the field's own name in another case, and holds text in
    every row. Conversations (`messages`) hold both the prompt and the completion.
    """
    seen = list(islice(rows, ROWS))
    if not seen:
        return Guess()
    there = {name for row in seen for name in row.fields} | given.sources.keys()
    taken = {source.column for source in given.columns.values()}
    names = dict.fromkeys(name for row in seen for name in row.columns if name not in {*FIELDS, *taken})
    found: dict[str, str] = {}
    for wanted in FIELDS:
        if wanted in there or wanted in REFUSED or (wanted in ("text", "completion") and "messages" in there):
            continue
        usual = (wanted, *USUAL.get(wanted, ()))
        like = [name for name in names if name.strip().lower().replace(" ", "_").replace("-", "_") in usual]
        if len(like) == 1 and _is_text(seen, like[0], numbers=wanted not in ("text", "completion")):
            found[wanted] = like[0]
    return Guess(found, numbered="id" not in there and "id" not in found)


def _is_text(rows: Iterable[ForeignRow], column: str, *, numbers: bool) -> bool:
    kinds = (str, int) if numbers else str
    return all(isinstance(value, kinds) for row in rows if (value := row.columns.get(column)) is not None)
