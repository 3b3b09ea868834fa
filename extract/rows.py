"""Rows of JSONL, CSV and Parquet files, each with the line it stands on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extract.errors import UserError


def read_rows(path: Path, what: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, fields) of a JSONL, CSV or Parquet file of `what`, for instance prompts.

    Raises:
        UserError: the file is missing, of another kind, or a line of it cannot be read; names the line.
    """
    if not path.is_file():
        raise UserError(f"{what} not found: {path}; give a .jsonl, .csv or .parquet file")
    match path.suffix.lower():
        case ".jsonl":
            yield from _jsonl_rows(path)
        case ".csv":
            yield from _csv_rows(path)
        case ".parquet":
            yield from _parquet_rows(path)
        case other:
            raise UserError(f"{path}: cannot read {what} from {other or 'a file without suffix'!r}; "
                            "use .jsonl, .csv or .parquet")  # fmt: skip


def _decoded(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text: {error.reason}; save the file as UTF-8") from None


def _jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(io.StringIO(_decoded(path), newline=None), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not valid JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
        yield number, row


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    # line ends are left as they are, since those inside quotes belong to the text
    reader = csv.DictReader(io.StringIO(_decoded(path), newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise UserError(f"{path}, line {reader.line_num}: the row does not have the header's columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.reader.line_num}: not valid CSV: {error}") from None


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {error}") from None
    yield from enumerate(table.to_pylist(), start=1)
