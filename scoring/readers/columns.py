"""Which column holds which field: by `--map FIELD=COLUMN`, by a YAML file, or guessed from its name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from extract.errors import UserError
from extract.prompts.columns import ABSENT, Column, ColumnMapping, Value, value_at
from extract.yaml_file import explain, read_yaml
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
        return {**self.columns, **self.constants}


def read_column_map(options: Sequence[str] = (), file: Path | None = None) -> ColumnMap:
    """Read a map from `FIELD=COLUMN` options and a YAML file; options override the file."""
    given = read_yaml(file, "column map") if file else {}
    columns: dict[str, Column] = {}
    for option in options:
        field, equals, column = (part.strip() for part in option.partition("="))
        if not (field and equals and column):
            raise UserError(f"--map takes FIELD=COLUMN, got {option!r}; for instance --map completion=response")
        if field in columns:
            raise UserError(f"--map names {field!r} twice: {columns[field].column!r} and {column!r}")
        columns[field] = Column(column=column)
    try:
        read = ColumnMap.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{file}: {explain(error, ColumnMap)}") from None
    try:
        named = ColumnMap(columns=columns)
    except ValidationError as error:
        raise UserError(f"--map: {explain(error, ColumnMap).removeprefix('columns: ')}") from None
    constants = {field: value for field, value in read.constants.items() if field not in named.columns}
    return ColumnMap(columns=read.columns | named.columns, constants=constants)


def checked(path: Path, rows: Iterable[ForeignRow], columns: ColumnMap) -> Iterator[ForeignRow]:
    """Pass rows on once every column of the map and a completion have been seen; else a UserError says what to type."""
    needed = ((name, field) for field, source in columns.columns.items() for name in (source.column, *source.unless))
    wanted = {name: field for name, field in needed if name != ROW_NUMBER}
    columns_seen: dict[str, object] = {}
    there: dict[str, None] = {}
    answered, dialogue = "completion" in columns.sources, columns.columns.get("messages")

    def complete(row: ForeignRow) -> bool:
        nonlocal wanted, answered
        wanted = {name: field for name, field in wanted.items() if value_at(row.columns, name) is ABSENT}
        messages = value_at(row.columns, dialogue.column) if dialogue else row.fields.get("messages")
        answered = answered or "completion" in row.fields or is_transcript(messages)
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


def _remedy(columns_seen: Row) -> str:
    """Say which columns are likely to hold completions, by their names."""
    ranks: dict[str, int] = {}
    for name, value in columns_seen.items():
        if not isinstance(value, str) or name.split(".")[0] in FIELDS:
            continue
        last = name.lower().split(".")[-1]
        if likely_words := [rank for rank, word in enumerate(_LIKELY) if word in last]:
            ranks[name] = likely_words[0]
        elif last in _INNER and "." in name:
            ranks[name] = len(_LIKELY)
    likely = sorted(ranks, key=lambda name: (ranks[name], len(name)))
    if not likely:
        return "name its column with --map completion=COLUMN"
    others = f" (or {', '.join(likely[1:4])})" if likely[1:] else ""
    return f"use --map completion={likely[0]}{others}"


def _nested(row: Row, before: str = "", depth: int = 6) -> Iterator[tuple[str, object]]:
    """Yield every column of a row and of its nested objects (of lists, the first entry), outer ones first."""
    held = {f"{before}{name}": value for name, value in row.items()}
    yield from held.items()
    for name, value in held.items():
        inner = {"0": value[0]} if isinstance(value, list) and value else value
        if depth and isinstance(inner, Mapping):
            yield from _nested(inner, f"{name}.", depth - 1)


def guess_columns(rows: Sequence[ForeignRow], given: ColumnMap) -> dict[str, str]:
    """Guess the columns of fields that no row and no map has.

    A column is guessed only if it alone has a usual name, or the field's own name in another case, and holds text in
    every row. `messages` hold both the prompt and the completion. Where no column can hold an id, it is ROW_NUMBER.
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
        kinds = str if wanted in ("text", "completion") else (str, int)
        if len(like) == 1:
            values = [row.columns.get(like[0]) for row in rows]
            if all(value is None or isinstance(value, kinds) for value in values):
                guessed[wanted] = like[0]
    return guessed if "id" in there or "id" in guessed else guessed | {"id": ROW_NUMBER}


def guess_line(field: str, column: str) -> str:
    """Say what was guessed and how to say otherwise, for the scorecard."""
    if column == ROW_NUMBER:
        return "numbered, because no column is called 'id' (--map id=COLUMN names one)"
    return f"read from column {column!r} as {field!r}, by its name (--map {field}=COLUMN names another)"
