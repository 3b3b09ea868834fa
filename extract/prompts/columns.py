"""Column mappings: which field of a prompt comes from which column of a data file."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import field_validator, model_validator

from extract.errors import UserError
from extract.prompts.prompt import ALTERNATIVES, OPTIONAL
from extract.prompts.rows import Row, is_missing
from extract.yaml_file import Strict

T = TypeVar("T")
Value = str | tuple[str, ...] | None
Counts = Counter[tuple[str, str]]  # occurrences so far of each (numbered field, value)
ABSENT = object()
VERBATIM = ("text", "completion")  # fields whose white space is kept


class Column(Strict):
    """A field read from a column. `text: question` is short for `text: {column: question}`."""

    column: str  # a name, or names joined by points for nested objects and lists: choices.0.text
    map: dict[str, Value] | None = None  # column value: field value, or null for none; other values are errors
    otherwise: Value = None  # what other values of the column give; without it they are errors
    single: bool = False  # the column holds lists: take the entry of a list of one, else nothing
    alternatives: bool = False  # the column holds a list of values that are equally right (in a table, as JSON)
    numbered: bool = False  # append a running number per value, so that the i-th rows of all values match
    unless: dict[str, tuple[str, ...]] = {}  # no value if another column has one of these values
    find: str | None = None  # a regular expression with one group: take what it finds, the rest is a wrapper
    context: str | None = None  # a column whose text stands before this one's, where it has any

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: Any) -> Any:
        return {"column": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _otherwise_follows_a_map(self) -> Column:
        if self.otherwise is not None and self.map is None:
            raise ValueError("`otherwise` says what values outside `map` give; give `map`, or a constant")
        return self

    @field_validator("find")
    @classmethod
    def _has_one_group(cls, given: str | None) -> str | None:
        if given is not None:
            try:
                groups = re.compile(given).groups
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
            if groups != 1:
                raise ValueError(f"the regular expression has {groups} groups; it needs one, (…), for what to take")
        return given

    @field_validator("map", mode="before")
    @classmethod
    def _keys_as_text(cls, given: Any) -> Any:
        return {as_text(key): value for key, value in given.items()} if isinstance(given, dict) else given


class ColumnMapping(Strict):
    """Fields read from columns, and fields with one value for all rows."""

    known: ClassVar[tuple[str, ...]] = ("id", "text", "messages", "label", "right_action", *OPTIONAL)
    what: ClassVar[str] = "a prompt"

    columns: dict[str, Column] = {}  # field: column
    constants: dict[str, Value] = {}  # field: value for all rows

    @field_validator("columns", "constants")
    @classmethod
    def _fields_exist(cls, given: dict[str, T]) -> dict[str, T]:
        for name in given:
            if name not in cls.known:
                near = difflib.get_close_matches(name, cls.known, n=1)
                raise ValueError(
                    f"no such field: {name}; "
                    + (f"did you mean {near[0]}?" if near else f"{cls.what} has {', '.join(cls.known)}")
                )
        return given


def as_text(value: object) -> str:
    """Return a value as the key of a map; booleans as `true` and `false`, as in YAML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """Return a row's value of a column, which may be in nested objects and lists; ABSENT if there is none."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list | tuple) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return ABSENT
    return value


def field_value(field: str, source: Column | Value, row: Row, where: str, counts: Counts) -> Any:
    """Return a row's value of a field, or None; UserError where it does not match the description of its column."""
    if not isinstance(source, Column):
        return source
    if any(as_text(_given(row, column)) in values for column, values in source.unless.items()):
        return None
    value = _given(row, source.column)
    if value is None:
        return None
    if source.single:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: column {source.column!r} is {type(value).__name__}; `single` needs a list")
        value = value[0] if len(value) == 1 else None
    value = _alternatives(value, source, where) if source.alternatives else value
    if source.find is not None and value is not None:
        match = re.search(source.find, as_text(value), re.DOTALL)
        if match is None:
            raise UserError(f"{where}: column {source.column!r} holds nothing that `find` finds ({source.find})")
        value = match[1]
    value = value.strip() if isinstance(value, str) and field not in VERBATIM else value
    if source.context is not None and (before := str(_given(row, source.context) or "").strip()):
        value = f"{before}\n\n---\n\n{value}"
    if is_missing(value) and not (isinstance(value, str) and (value != "" or field == "completion")):
        return None  # an empty completion is a value
    if source.map is None and not source.numbered:
        return value
    text = as_text(value)
    if source.map is not None:
        if text not in source.map and source.otherwise is None:
            raise UserError(
                f"{where}: column {source.column!r} is {text!r}, which is not in the map of {field!r}; "
                f"the map has {', '.join(source.map)}"
            )
        value = source.map.get(text, source.otherwise)
    if not source.numbered:
        return value
    counts[field, text] += 1
    return None if value is None else f"{value}/{counts[field, text]}"


def _given(row: Row, column: str) -> Any:
    value = value_at(row, column)
    return None if value is ABSENT else value


def _alternatives(value: Any, source: Column, where: str) -> str | None:
    try:
        held = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        held = None
    if not isinstance(held, list | tuple) or not all(isinstance(one, str | int | float) for one in held):
        raise UserError(f"{where}: column {source.column!r} is {value!r}; `alternatives` needs a list of values")
    return ALTERNATIVES.join(dict.fromkeys(as_text(one).strip() for one in held)) or None
