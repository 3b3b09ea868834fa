"""Which column holds which field: by `--map FIELD=COLUMN`, by a YAML file, or guessed from its name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from extract.errors import UserError
from extract.prompts.columns import ABSENT, Column, ColumnMapping, Value, value_at
from extract.yaml_file import as_model, explain, read_yaml
from scoring.case import Row
from scoring.readers.row import FIELDS, REFUSED, ForeignRow, held_until, is_transcript

ROW_NUMBER = "#"  # names the row's number in its file, unless a column has this name
# words in the names of columns that hold completions, the most likely first
_LIKELY = ("completion", "response", "output", "generation", "generated", "prediction", "reply", "answer", "result")
_INNER = ("content", "text")  # keys under which chat formats store text
_MAX_COLUMNS = 2000  # nested columns that are searched for similar names
_LISTED = 30  # columns named in a message
ROWS = 100  # read for a guess
# usual names of columns, lower case, with _ for spaces and hyphens; `answer` is a prompt's known answer
USUAL = {
    "id": "prompt_id question_id example_id idx index uid",
    "text": "prompt question instruction input query request user_prompt",
    "completion": "response output generation generated_text model_output model_response model_answer prediction reply",
}


class ColumnMap(ColumnMapping):
    """Maps a file's columns to fields of a completion. Fields that it does not name are read by their own names."""

    known: ClassVar[tuple[str, ...]] = FIELDS
    what: ClassVar[str] = "a completion"

    @property
    def sources(self) -> dict[str, Column | Value]:
        """The source of each field: a column or a constant."""
        return {**self.columns, **self.constants}


def read_column_map(options: Sequence[str] = (), file: Path | None = None) -> ColumnMap:
    """Read a map from `FIELD=COLUMN` options and a YAML file; options override the file.

    Raises:
        UserError: an option or a key is wrong; names it, and the nearest known field.
    """
    read = as_model(ColumnMap, read_yaml(file, "column map"), file) if file else ColumnMap()
    columns = _from_options(options)
    try:
        named = ColumnMap(columns=columns)
    except ValidationError as error:
        raise UserError(f"--map: {explain(error, ColumnMap).removeprefix('columns: ')}") from None
    constants = {field: value for field, value in read.constants.items() if field not in named.columns}
    return ColumnMap(columns=read.columns | named.columns, constants=constants)


def _from_options(options: Sequence[str]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for option in options:
        field, equals, column = (part.strip() for part in option.partition("="))
        if not (field and equals and column):
            raise UserError(f"--map takes FIELD=COLUMN, got {option!r}; for instance --map completion=response")
        if field in columns:
            raise UserError(f"--map names {field!r} twice: {columns[field].column!r} and {column!r}")
        columns[field] = Column(column=column)
    return columns


def checked(path: Path, rows: Iterable[ForeignRow], columns: ColumnMap) -> Iterator[ForeignRow]:
    """Pass rows on once every column of the map, and a completion, has been seen.

    Raises:
        UserError: no row has one of them; names the nearest column, and what to type.
    """
    wanted = {
        name: field
        for field, source in columns.columns.items()
        for name in (source.column, *source.unless)
        if name != ROW_NUMBER
    }
    columns_seen: dict[str, object] = {}
    there: dict[str, None] = {}
    answered = "completion" in columns.sources

    def complete(row: ForeignRow) -> bool:
        nonlocal wanted, answered
        wanted = {name: field for name, field in wanted.items() if value_at(row.columns, name) is ABSENT}
        answered = answered or "completion" in row.fields or is_transcript(_messages(row, columns))
        if len(columns_seen) < _MAX_COLUMNS:
            columns_seen.update(islice(_nested(row.columns), _MAX_COLUMNS))
            there.update(dict.fromkeys(row.columns))
        return answered and not wanted

    def refusal() -> UserError:
        if not columns_seen:
            return UserError(f"{path} holds no completions")
        if wanted:
            name, field = next(iter(wanted.items()))
            near = difflib.get_close_matches(name, columns_seen, n=1)
            hint = f"did you mean --map {field}={near[0]}? " if near else ""
            return UserError(
                f"{path}: no row has a column {name!r}, needed for field {field!r}; {hint}{listed([*there])}"
            )
        return UserError(f"{path}: no row has a field 'completion'; {_remedy(columns_seen)}; {listed([*there])}")

    return held_until(rows, complete, refusal)


def listed(names: Sequence[str]) -> str:
    """Return a list of the columns for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"the columns are {', '.join(names[:_LISTED])}{more}"


def _messages(given: ForeignRow, columns: ColumnMap) -> object:
    source = columns.columns.get("messages")
    return value_at(given.columns, source.column) if source else given.fields.get("messages")


def _remedy(columns_seen: Row) -> str:
    ranks = {name: _completion_rank(name) for name, value in columns_seen.items() if isinstance(value, str)}
    likely = sorted(
        (name for name, rank in ranks.items() if rank is not None), key=lambda name: (ranks[name], len(name))
    )
    if not likely:
        return "name its column with --map completion=COLUMN"
    others = f" (or {', '.join(likely[1:4])})" if likely[1:] else ""
    return f"use --map completion={likely[0]}{others}"


def _completion_rank(name: str) -> int | None:
    """Return the rank of a column as a likely holder of completions; None if its name suggests nothing."""
    if name.split(".")[0] in FIELDS:
        return None
    last = name.lower().split(".")[-1]
    ranks = [rank for rank, word in enumerate(_LIKELY) if word in last]
    return ranks[0] if ranks else len(_LIKELY) if last in _INNER and "." in name else None


def _nested(row: Row, before: str = "", depth: int = 6) -> Iterator[tuple[str, object]]:
    """Yield every column of a row and of its nested objects (of lists, the first entry), outer ones first."""
    held = {f"{before}{name}": value for name, value in row.items()}
    yield from held.items()
    for name, value in held.items():
        inner = {"0": value[0]} if isinstance(value, list) and value else value
        if depth and isinstance(inner, Mapping):
            yield from _nested(inner, f"{name}.", depth - 1)


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


def guess_columns(rows: Sequence[ForeignRow], given: ColumnMap) -> Guess:
    """Guess the columns of fields that no row and no map has.

    A column is guessed only if it alone has a usual name, or the field's own name in another case, and holds text in
    every row. Conversations (`messages`) hold both the prompt and the completion.
    """
    there = {name for row in rows for name in row.fields} | given.sources.keys()
    taken = {source.column for source in given.columns.values()}
    names = dict.fromkeys(name for row in rows for name in row.columns if name not in {*FIELDS, *taken})
    guessed: dict[str, str] = {}
    for wanted in FIELDS:
        if wanted in there or wanted in REFUSED or (wanted in ("text", "completion") and "messages" in there):
            continue
        usual = {wanted, *USUAL.get(wanted, "").split()}
        like = [name for name in names if name.strip().lower().replace(" ", "_").replace("-", "_") in usual]
        if len(like) == 1 and _is_text(rows, like[0], numbers=wanted not in ("text", "completion")):
            guessed[wanted] = like[0]
    return Guess(guessed, numbered="id" not in there and "id" not in guessed)


def _is_text(rows: Iterable[ForeignRow], column: str, *, numbers: bool) -> bool:
    kinds = (str, int) if numbers else str
    return all(isinstance(value, kinds) for row in rows if (value := row.columns.get(column)) is not None)
