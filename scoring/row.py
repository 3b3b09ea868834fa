"""A row of a file of completions or scores: fields by name, as parsed; its place, its id, its sample."""

from __future__ import annotations

from collections.abc import Mapping

from extract.errors import UserError

Row = Mapping[str, object]  # whatever the file holds: each reader checks the fields that it takes


def to_text(value: object) -> str:
    """Return a value as text that can be stored and printed: 3.0 (a number in a column with gaps) is 3."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is no character


def is_missing(value: object) -> bool:
    """Say whether a field is left open, as each format writes it: null, an empty cell, NaN."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def place_of(row: Row) -> str:
    """Name a row's file and line, for messages."""
    return str(row.get("place") or f"the completion of {row.get('id')!r}")


def identifier_of(row: Row) -> str:
    """Return a row's id, as text.

    Raises:
        UserError: it has none; names the row's place.
    """
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float) or is_missing(value):
        raise UserError(f"{place_of(row)}: field 'id' is {value!r}; expected a text or a number")
    return to_text(value)


def sample_of(row: Row) -> str:
    """Return which of several completions of one prompt a row is, "" where the row does not name one."""
    value = row.get("sample")
    return "" if is_missing(value) else to_text(value)
