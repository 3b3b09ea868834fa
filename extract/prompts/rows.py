"""Rows of JSONL, JSON, CSV and Parquet files, each with its line number."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from extract.errors import UserError
from extract.prompts.lines import EncodingRepair, TextLines

Row = dict[str, Any]  # the fields of one row of a file somebody else wrote, not yet checked
LONGEST_FIELD = 1 << 24  # characters of a CSV field where long ones may stand: more is a quote left open
ROWS_AT_ONCE = 256  # of a Parquet file


def read_rows(
    path: Path,
    what: str,
    at: str | None = None,
    *,
    encoding: str | None = None,
    on_repair: Callable[[EncodingRepair], None] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield (line number, fields) of a JSONL, JSON, CSV or Parquet file of `what`, for instance prompts.

    Only JSON is read as a whole; of the others, memory holds a few rows at a time, however many there are.

    Args:
        at: where the rows stand in a JSON file that is more than a list of them: keys joined by points, `*` for every
            key in turn, which each row then holds as `key`. Entries that are no objects become the field `value`.
        encoding: of a text file, where it is neither UTF-8 nor begins with UTF-16's mark.
        mended: given, bytes that are no text are mended (lines.py) rather than refused, and it is called for
            each row (of a JSON file: each line) that had any; CSV fields may then be long.

    Raises:
        UserError: the file is missing, of another kind, or a line of it cannot be read; names the line.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory; give a file of {what}: .jsonl, .json, .csv or .parquet")
    if not path.is_file():
        raise UserError(f"{what} not found: {path}; give a .jsonl, .json, .csv or .parquet file")
    try:
        match path.suffix.lower():
            case ".jsonl":
                yield from _jsonl_rows(TextLines(path, encoding, on_repair))
            case ".json":
                yield from _json_rows(TextLines(path, encoding, on_repair), at)
            case ".csv":
                yield from _csv_rows(TextLines(path, encoding, on_repair))
            case ".parquet":
                yield from _parquet_rows(path)
            case other:
                raise UserError(f"{path}: cannot read {what} from {other or 'a file without suffix'!r}; "
                                "use .jsonl, .json, .csv or .parquet")  # fmt: skip
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def place(path: Path, number: int) -> str:
    """Name the place of a row in its file."""
    return f"{path}, {'item' if path.suffix.lower() == '.json' else 'line'} {number}"


def _jsonl_rows(lines: TextLines) -> Iterator[tuple[int, Row]]:
    path, left = lines.path, iter(lines)
    for number, line in enumerate(left, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            deque(left, maxlen=0)  # a later line that is no text says more: the file is something else
            raise UserError(f"{path}, line {number}: not valid JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
        lines.end_row()
        yield number, row


def _json_rows(lines: TextLines, at: str | None) -> Iterator[tuple[int, Row]]:
    path = lines.path
    try:
        held = json.loads("".join(_each(lines)))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON: {error.msg} at column {error.colno}") from None
    for number, (key, item) in enumerate(_items(held, at.split(".") if at else [], path, None), start=1):
        if at is None and not isinstance(item, dict):
            raise UserError(f"{place(path, number)}: expected a JSON object, found {type(item).__name__}")
        row = item if isinstance(item, dict) else {"value": item}
        yield number, row if key is None else {"key": key} | row


def _each(lines: TextLines) -> Iterator[str]:
    for line in lines:
        lines.end_row()
        yield line


def _items(held: Any, steps: list[str], path: Path, key: str | None) -> Iterator[tuple[str | None, Any]]:
    if not steps:
        if not isinstance(held, list):
            raise UserError(f"{path}: expected a list of rows, found {type(held).__name__}"
                            + (f" with {', '.join(map(repr, held))}" if isinstance(held, dict) else ""))  # fmt: skip
        yield from ((key, item) for item in held)
        return
    step, *rest = steps
    if not isinstance(held, dict) or (step != "*" and step not in held):
        found = f"has {', '.join(map(repr, held))}" if isinstance(held, dict) else f"is a {type(held).__name__}"
        raise UserError(f"{path}: no key {step!r} where the rows should be; what is there {found}")
    for name in held if step == "*" else [step]:
        yield from _items(held[name], rest, path, name if step == "*" else key)


def _csv_rows(lines: TextLines) -> Iterator[tuple[int, Row]]:
    path, reader = lines.path, csv.DictReader(iter(lines), strict=True)
    try:
        while (row := _next_row(reader, LONGEST_FIELD if lines.lenient else None)) is not None:
            only = next(iter(row), None) if len(row) == 1 else None
            if only and (other := next((mark for mark in (";", "\t") if mark in only), None)):
                raise UserError(f"{path}: the columns are separated by {other!r}, not by commas; save it with commas")
            if None in row or None in row.values():
                raise UserError(f"{path}, line {reader.line_num}: the row does not have the header's columns")
            lines.end_row()
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.reader.line_num}: not valid CSV: {error}") from None


def _next_row(reader: csv.DictReader[str], longest: int | None) -> Row | None:
    """Read one row. The limit on fields is the whole process's: it is another only while the row is read."""
    if longest is None:
        return next(reader, None)
    before = csv.field_size_limit(longest)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow.parquet

    number = 0
    try:
        # a writer may put a million rows into one group: neither that nor its columns are read at once
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from enumerate(batch.to_pylist(), start=number + 1)
                number += batch.num_rows
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a text in the {ROWS_AT_ONCE} rows after line {number} is not UTF-8: "
                        f"{error.reason}") from None  # fmt: skip
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from None
