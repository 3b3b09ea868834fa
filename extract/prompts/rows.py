"""Reads rows of JSONL, JSON, CSV, TSV and Parquet files, each with its line number."""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from encodings.aliases import aliases
from pathlib import Path
from typing import Any, Literal

from extract.errors import UserError

Row = dict[str, Any]  # the unchecked fields of one row of a file
LONGEST_FIELD = 1 << 24  # characters of a CSV field; a longer one has an unclosed quote
ROWS_AT_ONCE = 256  # rows of a Parquet file in memory


def read_rows(
    path: Path,
    what: str,
    at: str | None = None,
    *,
    encoding: str | None = None,
    on_repair: Callable[[EncodingRepair], None] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield (line number, fields) of a JSONL, JSON, CSV, TSV or Parquet file; `what` it holds is named in messages.

    JSON is read as a whole, of the other formats a few rows at a time. Raises UserError, naming the line.

    Args:
        at: where the rows are in a JSON file: keys joined by points; `*` means every key in turn, which each row then
            has as `key`. Entries that are not objects become the field `value`.
        encoding, on_repair: as for `TextLines`; with `on_repair` CSV fields may be long.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory; give a file of {what}: .jsonl, .json, .csv, .tsv or .parquet")
    if not path.is_file():
        raise UserError(f"{what} not found: {path}; give a .jsonl, .json, .csv, .tsv or .parquet file")
    try:
        match path.suffix.lower():
            case ".jsonl":
                yield from _jsonl_rows(TextLines(path, encoding, on_repair))
            case ".json":
                yield from _json_rows(TextLines(path, encoding, on_repair), at)
            case ".csv" | ".tsv" as separated:
                yield from _csv_rows(TextLines(path, encoding, on_repair), "," if separated == ".csv" else "\t")
            case ".parquet":
                yield from _parquet_rows(path)
            case other:
                raise UserError(
                    f"{path}: cannot read {what} from {other or 'a file without suffix'!r}; "
                    "use .jsonl, .json, .csv, .tsv or .parquet"
                )
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def is_missing(value: object) -> bool:
    """Return whether a field is empty in any format: null, NaN, an empty cell or blank text."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def place(path: Path, number: int) -> str:
    """Return the place of a row in its file, for messages."""
    return f"{path}, {'item' if path.suffix.lower() == '.json' else 'line'} {number}"


def _jsonl_rows(lines: TextLines) -> Iterator[tuple[int, Row]]:
    path, left = lines.path, iter(lines)
    for number, line in enumerate(left, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            deque(left, maxlen=0)  # an encoding error in a later line is more helpful: the file is not text
            raise UserError(f"{path}, line {number}: not valid JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
        lines.end_row()
        yield number, row


def _json_rows(lines: TextLines, at: str | None) -> Iterator[tuple[int, Row]]:
    path = lines.path
    text = ""
    for line in lines:
        text += line
        lines.end_row()
    content = _parsed(text, path)
    for number, (key, item) in enumerate(_items(content, at.split(".") if at else [], path, None), start=1):
        if at is None and not isinstance(item, dict):
            raise UserError(f"{place(path, number)}: expected a JSON object, found {type(item).__name__}")
        row = item if isinstance(item, dict) else {"value": item}
        yield number, row if key is None else {"key": key} | row


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # after the first value: perhaps one a line
            with suppress(json.JSONDecodeError):
                return [json.loads(line) for line in text.split("\n") if line.strip()]
        raise UserError(f"{path}, line {error.lineno}: not valid JSON: {error.msg} at column {error.colno}") from None


def _items(content: Any, steps: list[str], path: Path, key: str | None) -> Iterator[tuple[str | None, Any]]:
    if not steps:
        if not isinstance(content, list):
            keys = f" with {', '.join(map(repr, content))}" if isinstance(content, dict) else ""
            raise UserError(f"{path}: expected a list of rows, found {type(content).__name__}{keys}")
        yield from ((key, item) for item in content)
        return
    step, *rest = steps
    if not isinstance(content, dict) or (step != "*" and step not in content):
        described = ", ".join(map(repr, content)) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise UserError(f"{path}: no key {step!r} on the way to the rows; found {described}")
    for name in content if step == "*" else [step]:
        yield from _items(content[name], rest, path, name if step == "*" else key)


def _csv_rows(lines: TextLines, separator: str) -> Iterator[tuple[int, Row]]:
    path, reader = lines.path, csv.DictReader(iter(lines), strict=True, delimiter=separator)
    try:
        while (row := _next_row(reader, LONGEST_FIELD if lines.lenient else None)) is not None:
            only = next(iter(row), None) if len(row) == 1 else None
            if separator == "," and only and (other := next((mark for mark in (";", "\t") if mark in only), None)):
                raise UserError(f"{path}: the columns are separated by {other!r}; save the file with commas")
            if None in row or None in row.values():
                raise UserError(f"{path}, line {reader.line_num}: the row has more or fewer columns than the header")
            lines.end_row()
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.reader.line_num}: not valid CSV: {error}") from None


def _next_row(reader: csv.DictReader[str], longest: int | None) -> Row | None:
    """Read one row. The limit on field length is global, so it is changed only while the row is read."""
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
        # a row group may hold a million rows, so neither it nor its columns are read at once
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from enumerate(batch.to_pylist(), start=number + 1)
                number += batch.num_rows
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: a text in the {ROWS_AT_ONCE} rows after line {number} is not UTF-8: {error.reason}"
        ) from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from None


# Bytes read as another encoding, or U+FFFD put in place of what is none.
EncodingRepair = Literal["windows_1252", "replaced"]
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_BYTE = re.compile("[\udc80-\udcff]")  # an invalid byte, as `surrogateescape` encodes it
_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class TextLines:
    """The lines of a file, with unchanged line ends.

    Without `encoding` it is UTF-8, or UTF-16 by its byte order mark. With `on_repair`, called once per kind of repair
    in each row, invalid bytes are read as Windows-1252, or replaced by U+FFFD under a given encoding; else refused.
    """

    def __init__(
        self, path: Path, encoding: str | None = None, on_repair: Callable[[EncodingRepair], None] | None = None
    ) -> None:
        self.path, self.lenient = path, on_repair is not None
        self._on_repair, self._repairs = on_repair, set[EncodingRepair]()
        self._named = encoding is not None
        self._encoding = _codec(path, encoding)

    def end_row(self) -> None:
        """Report the repairs in the lines since the last row ended."""
        if self._on_repair is not None:
            for repair in sorted(self._repairs):
                self._on_repair(repair)
        self._repairs.clear()

    def __iter__(self) -> Iterator[str]:
        errors = "surrogatepass" if self._encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        number = 0
        with self.path.open(encoding=self._encoding, errors=errors, newline="") as file:
            try:
                for number, line in enumerate(file, start=1):
                    text = line.removeprefix("\ufeff") if number == 1 else line
                    yield text if is_text(text) else self._repair(text, number)
            except UnicodeDecodeError as error:  # not representable by either error handler, such as a cut character
                raise self._refusal(number + 1, error.reason) from None

    def _repair(self, line: str, number: int) -> str:
        if not self.lenient:
            raise self._refusal(number, self._reason(line))
        if self._encoding == "utf-8" and not self._named:
            self._repairs.add("windows_1252")
            return _BYTE.sub(lambda byte: bytes([ord(byte[0]) - 0xDC00]).decode("cp1252", "replace"), line)
        self._repairs.add("replaced")
        return replace_surrogates(line)

    def _reason(self, line: str) -> str:
        try:
            line.encode(self._encoding, "surrogateescape").decode(self._encoding)
        except UnicodeDecodeError as error:
            return error.reason
        except UnicodeEncodeError:
            pass
        return "half of a surrogate pair"

    def _refusal(self, number: int, reason: str) -> UserError:
        name = self._encoding.upper()
        return UserError(f"{self.path}, line {number}: not {name} text: {reason}; save the file as UTF-8")


def is_text(text: str) -> bool:
    """Return whether a string is valid Unicode, without lone surrogates, so that it can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Replace every lone surrogate by U+FFFD."""
    return _HALF.sub(_REPLACEMENT, text)


def _codec(path: Path, encoding: str | None) -> str:
    """Return the codec of an encoding, or that of the file's byte order mark."""
    if encoding is None:
        with path.open("rb") as file:
            head = file.read(3)
        return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")
    try:
        io.TextIOWrapper(io.BytesIO(), encoding).close()
        return codecs.lookup(encoding).name
    except (LookupError, ValueError):  # unknown, or not a text encoding
        near = difflib.get_close_matches(encoding.lower().replace("-", "_"), sorted(aliases), n=1)
        hint = f"did you mean {near[0]}?" if near else "use for example utf-8, latin-1, cp1252, shift_jis"
        raise UserError(f"no such text encoding: {encoding!r}; {hint}") from None
