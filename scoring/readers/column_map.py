"""What a user says of a file's columns: `--map FIELD=COLUMN`, or a YAML file with `columns` and `constants`."""

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
from scoring.readers.completion_row import FIELDS, ForeignRow
from scoring.readers.turns import is_transcript
from scoring.row import Row

ROW_NUMBER = "#"  # the column of the row's number in its file, unless there is one of that name
# words that speak for a column, the surest first
_LIKELY = ("completion", "response", "output", "generation", "generated", "prediction", "reply", "answer", "result")
_INNER = ("content", "text")  # under which chat formats keep what was said
_LOOKED_AT = 2000  # nested columns of a row
_LISTED = 30


class ColumnMap(ColumnMapping):
    """Which of a file's columns are which fields of a completion. What it does not name is read by its own name."""

    known: ClassVar[tuple[str, ...]] = FIELDS
    what: ClassVar[str] = "a completion"

    @property
    def sources(self) -> dict[str, Column | Value]:
        """Where each field that it names comes from."""
        return {**self.columns, **self.constants}


def read_column_map(options: Sequence[str] = (), file: Path | None = None) -> ColumnMap:
    """Read a map from `FIELD=COLUMN` options and a YAML file; the options go before the file.

    Raises:
        UserError: an option or a key is mistaken; names it, and the nearest known field.
    """
    given = read_yaml(file, "column map") if file else {}
    columns = _from_options(options)
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


def refuse_absent_columns(path: Path, rows: Iterable[ForeignRow], columns: ColumnMap) -> None:
    """Read rows until every column of the map, and a completion, has been seen.

    Raises:
        UserError: no row has one; names the nearest there is, and what to type.
    """
    wanted = {
        name: field
        for field, source in columns.columns.items()
        for name in (source.column, *source.unless)
        if name != ROW_NUMBER
    }
    looked_at: dict[str, object] = {}
    there: dict[str, None] = {}
    answered = "completion" in columns.sources
    for given in rows:
        wanted = {name: field for name, field in wanted.items() if value_at(given.columns, name) is ABSENT}
        answered = answered or "completion" in given.fields or is_transcript(_messages(given, columns))
        if answered and not wanted:
            return
        if len(looked_at) < _LOOKED_AT:
            looked_at |= dict(islice(_nested(given.columns), _LOOKED_AT))
            there |= dict.fromkeys(given.columns)
    if not looked_at:
        raise UserError(f"{path} holds no completions")
    if wanted:
        name, field = next(iter(wanted.items()))
        near = difflib.get_close_matches(name, looked_at, n=1)
        hint = f"did you mean --map {field}={near[0]}? " if near else ""
        raise UserError(f"{path}: no row has a column {name!r}, wanted as {field!r}; {hint}{listed([*there])}")
    raise UserError(f"{path}: no row has a field 'completion'; {_remedy(looked_at)}; {listed([*there])}")


def listed(names: Sequence[str]) -> str:
    """List the columns there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"the columns are {', '.join(names[:_LISTED])}{more}"


def _messages(given: ForeignRow, columns: ColumnMap) -> object:
    source = columns.columns.get("messages")
    return value_at(given.columns, source.column) if source else given.fields.get("messages")


def _remedy(looked_at: Row) -> str:
    ranks = {name: _likeness(name) for name, value in looked_at.items() if isinstance(value, str)}
    found = [(rank, len(name), name) for name, rank in ranks.items() if rank is not None]
    likely = [name for *_, name in sorted(found, key=lambda one: one[:2])]
    if not likely:
        return "name its column with --map completion=COLUMN"
    others = f" (or {', '.join(likely[1:4])})" if likely[1:] else ""
    return f"say --map completion={likely[0]}{others}"


def _likeness(name: str) -> int | None:
    """Rank a column as one that may hold completions; None if nothing speaks for it."""
    if name.split(".")[0] in FIELDS:
        return None
    last = name.lower().split(".")[-1]
    ranks = [rank for rank, word in enumerate(_LIKELY) if word in last]
    return ranks[0] if ranks else len(_LIKELY) if last in _INNER and "." in name else None


def _nested(row: Row, before: str = "", depth: int = 6) -> Iterator[tuple[str, object]]:
    """Yield every column of a row and of the objects in it, of lists their first entry, outer ones first."""
    held = {f"{before}{name}": value for name, value in row.items()}
    yield from held.items()
    for name, value in held.items():
        inner = {"0": value[0]} if isinstance(value, list) and value else value
        if depth and isinstance(inner, Mapping):
            yield from _nested(inner, f"{name}.", depth - 1)
