"""One row of a file of completions or scores: its fields by name, its place in the file, its id and its sample."""

from __future__ import annotations

from collections.abc import Mapping

from extract.errors import UserError

Row = Mapping[str, object]  # unchecked: each reader checks the fields that it uses


def to_text(value: object) -> str:
    """Return a value as text that can be stored and printed; 3.0 (an integer in a column with gaps) becomes 3."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not a character


def is_missing(value: object) -> bool:
    """Return whether a field is empty in any format: null, an empty cell, NaN."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def place_of(row: Row) -> str:
    """Return a row's file and line for messages."""
    return str(row.get("place") or f"the completion of {row.get('id')!r}")


def identifier_of(row: Row) -> str:
    """Return a row's id, as text.

    Raises:
        UserError: the id is missing; names the row's place.
    """
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float) or is_missing(value):
        raise UserError(f"{place_of(row)}: field 'id' is {value!r}; expected text or a number")
    return to_text(value)


def sample_of(row: Row) -> str:
    """Return the sample of a row (its number among completions of one prompt), "" where it has none."""
    value = row.get("sample")
    return "" if is_missing(value) else to_text(value)
