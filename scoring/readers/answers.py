"""Reads completions of any model from rows, Inspect logs and lm-eval samples, and maps them to our field names.

Rows are streamed; only `.json` files are in memory as a whole.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, starmap
from pathlib import Path
from typing import cast

import zstandard

from extract.errors import UserError
from extract.prompts.columns import ABSENT, Column, Counts, as_text, field_value, value_at
from extract.prompts.rows import is_missing, is_text, place, read_rows, replace_surrogates
from scoring.case import Row
from scoring.judges import RefusedBy
from scoring.judges.structured_refusal import structured_refusal
from scoring.readers.columns import (
    FIELDS,
    PROMPT_FIELDS,
    ROW_NUMBER,
    ROWS,
    ColumnMap,
    ForeignRow,
    InputNotes,
    checked,
    content_text,
    guess_columns,
    guess_line,
    is_transcript,
    listed,
    prompt_fields,
    turns,
)

_HEAD = 1 << 16  # bytes: the header keys of a log come before its samples
_ZSTANDARD = 93  # compression method of ZIP entries that zipfile lists but cannot read
_LOCAL_HEADER = 30  # bytes; then the name and the extra field, whose lengths are in its last four bytes
_SAMPLE = frozenset({"doc_id", "resps", "arguments"})  # keys of an lm-eval sample
AROUND = "around"  # of a row's fields: the objects that its completion's column lies in


def read_answers(
    path: Path, notes: InputNotes, columns: ColumnMap | None = None, encoding: str | None = None
) -> Iterator[Row]:
    """Yield completions: `id`, `completion` (None where missing), `place`, and further FIELDS that the row has.

    Where the row reports a refusal outside its text, `by` says by what, and the completion is the words with it.
    Where messages end with the assistant's turn and there is no completion, that turn is the completion. `messages` are
    the turns before it. `text`, if not given, is the last user turn among them. A UserError names the line.

    Args:
        path: .jsonl, .json, .csv or .parquet rows, an Inspect log (.eval, .json) or lm-eval's samples (.jsonl).
        notes: counts repaired and left-out rows, and rows with a guessed column.
        columns: maps columns to fields, before the rows' own names; where neither names id, text or completion, their
            columns are guessed.
        encoding: of a text file that is neither UTF-8 nor UTF-16 with a byte order mark.
    """
    rows, columns, counts = _read(path, encoding, notes), columns or ColumnMap(), Counts()
    first = list(islice(rows, ROWS))
    guessed = guess_columns(first, columns)
    named = {field: Column(column=column) for field, column in guessed.items() if column != ROW_NUMBER}
    columns = columns.model_copy(update={"columns": named | columns.columns})
    for number, given in enumerate(checked(path, chain(first, rows), columns), start=1):
        notes.guessed.update(guess_line(field, column) for field, column in guessed.items())
        numbered = {"id": f"row {number}"} if guessed.get("id") == ROW_NUMBER else {}
        yield _answer(given, {**_mapped(given, number, columns, counts), **numbered}, notes)


def read_records(records: Iterable[Row], notes: InputNotes, columns: ColumnMap | None = None) -> Iterator[Row]:
    """Yield completions of rows that are in memory, as `read_answers` does of a file; a row's place is its number."""
    columns, counts = columns or ColumnMap(), Counts()
    for number, record in enumerate(records, start=1):
        given = _named(f"row {number}", record)
        yield _answer(given, _mapped(given, number, columns, counts), notes)


def read_sample(sample: Row) -> Row:
    """Return the completion of one sample as an Inspect log holds it, as `read_answers` reads it from the log."""
    given = ForeignRow(f"sample {sample.get('id')}", sample, _sample_fields(sample))
    return _answer(given, given.fields, InputNotes())


def _read(path: Path, encoding: str | None, notes: InputNotes) -> Iterator[ForeignRow]:
    if _is_log(path):
        return _read_log(path, notes)
    rows = read_rows(path, "completions", encoding=encoding, on_repair=notes.repaired)
    placed = ((place(path, number), row) for number, row in rows)
    first = list(islice(placed, 1))
    if first and _is_sample(first[0][1]):
        return _read_samples(chain(first, placed), notes)
    return starmap(_named, chain(first, placed))


def _named(where: str, row: Row) -> ForeignRow:
    return ForeignRow(where, row, {name: row[name] for name in FIELDS if name in row})


def _mapped(given: ForeignRow, number: int, columns: ColumnMap, counts: Counts) -> Row:
    if not columns.sources:
        return dict(given.fields)
    row = {ROW_NUMBER: number, **given.columns}
    read = {name: field_value(name, source, row, given.place, counts) for name, source in columns.sources.items()}
    around = {}
    if isinstance(completion := columns.sources.get("completion"), Column):
        names = completion.column.split(".")  # the objects that a nested column lies in, the nearest first
        around = {AROUND: [value_at(given.columns, ".".join(names[:n])) for n in range(len(names) - 1, 0, -1)]}
    return {**given.fields, **around, **read}


def _refusal(given: ForeignRow, fields: Row) -> tuple[RefusedBy, str] | None:
    """Return the refusal that a row reports outside the text of its completion, or of its last turn."""
    around, content, held = fields.get(AROUND), fields.get("completion"), fields.get("messages")
    holders = list(around) if isinstance(around, list) else []
    if "completion" not in fields and isinstance(held, list | tuple) and is_transcript(held):
        content, holders = held[-1].get("content"), [held[-1]]
    return structured_refusal(content, (*holders, fields, given.columns))


def _answer(given: ForeignRow, fields: Row, notes: InputNotes) -> Row:
    message = fields.get("completion")
    if isinstance(message, Mapping) and message.get("role") == "assistant":
        fields = {**fields, "completion": message.get("content"), AROUND: [message]}
    messages, completion = _dialogue(fields, given.place)
    by, words = _refusal(given, fields) or (None, "")
    if by is not None:
        completion = words or completion or ""
    asked = [turn["content"] for turn in messages if turn["role"] == "user"]
    text = _text("text", fields.get("text"), given.place) or (asked[-1] if asked else None)
    answer: dict[str, object] = {
        "id": _identifier(fields, given),
        "sample": _sample(fields.get("sample"), given.place),
        "text": text,
        "messages": messages or None,
        "by": by,
    }
    for name in (name for name in PROMPT_FIELDS if name in fields):
        value = fields[name]
        listed = name == "acceptable" and isinstance(value, list | tuple)
        answer[name] = [*cast(list[object], value)] or None if listed else _text(name, value, given.place)
    row = {name: value for name, value in answer.items() if value is not None}
    row |= {"completion": completion, "place": given.place}
    whole = {name: _whole(value) for name, value in row.items()}
    if whole != row:
        notes.repaired("replaced")
    return whole


def _dialogue(fields: Row, where: str) -> tuple[list[dict[str, str]], str | None]:
    """Return the conversation before the completion, and the completion (it may be the last turn)."""
    given = fields.get("messages")
    messages = [] if is_missing(given) else turns(given, where)
    last = messages[-1]["content"] if is_transcript(messages) else None
    completion = _completion(fields["completion"], where) if "completion" in fields else last
    return messages[:-1] if last is not None and last == completion else messages, completion


def _completion(value: object, where: str) -> str | None:
    if is_missing(value) and not isinstance(value, str):
        return None
    text = as_text(value) if isinstance(value, int | float) else content_text(value)
    if text is None:
        inner = next(iter(value)) if isinstance(value, Mapping) and value else "0"
        remedy = f"name a column inside it, for instance --map completion=completion.{inner}"
        raise UserError(f"{where}: field 'completion' is {type(value).__name__}; expected text: {remedy}")
    return text


def _identifier(fields: Row, given: ForeignRow) -> str:
    value = fields.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int) or is_missing(value):
        fault = "is missing" if is_missing(value) else f"is {value!r}; expected text or a whole number"
        raise UserError(
            f"{given.place}: field 'id' {fault}; name its column with --map id=COLUMN, or number the rows "
            f"with --map id={ROW_NUMBER}; {listed(list(given.columns))}"
        )
    return str(value)


def _sample(value: object, where: str) -> int | str | None:
    text = _text("sample", int(value) if isinstance(value, float) and value.is_integer() else value, where)
    return int(text) if text is not None and text.isdecimal() else text


def _text(name: str, value: object, where: str) -> str | None:
    if is_missing(value):
        return None
    if isinstance(value, str | int | float):
        return as_text(value)
    raise UserError(f"{where}: field '{name}' is {type(value).__name__}; expected text")


def _whole(value: object) -> object:
    """Return a value that can be written as UTF-8: halves of surrogate pairs (from JSON escapes) are replaced."""
    if isinstance(value, dict):
        return {name: _whole(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_whole(held) for held in value]
    return replace_surrogates(value) if isinstance(value, str) and not is_text(value) else value


# Inspect's logs (`.eval`, a ZIP archive of samples, or `.json`) and lm-eval's samples.


def _is_log(path: Path) -> bool:
    """Return whether a file is an Inspect log: by its suffix, or by the first keys of a JSON file."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return path.suffix.lower() == ".eval"
    with path.open("rb") as file:
        head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"{") and all(f'"{key}"'.encode() in head for key in ("version", "status", "eval"))


def _read_log(path: Path, notes: InputNotes) -> Iterator[ForeignRow]:
    """Yield the samples of a log; a `.json` log is in memory as a whole."""
    if not path.is_file():
        raise UserError(f"completions not found: {path}")
    if path.suffix.lower() == ".json":
        for number, sample in read_rows(path, "samples", at="samples", on_repair=notes.repaired):
            yield ForeignRow(place(path, number), sample, _sample_fields(sample))
        return
    for where, content in _entries(path, "samples/"):
        try:
            sample = json.loads(content)
        except ValueError as error:
            raise UserError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(sample, dict):
            raise UserError(f"{where}: expected a JSON object, found {type(sample).__name__}")
        yield ForeignRow(where, sample, _sample_fields(sample))


def _sample_fields(sample: Row) -> Row:
    """Return our fields of a log's sample."""
    given = sample.get("input")
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else given
    content = value_at(sample, "output.choices.0.message.content")  # of the first choice, which Inspect scores
    return {
        **prompt_fields(sample.get("metadata")),
        "id": sample.get("id"),
        "sample": sample.get("epoch"),
        "messages": sample.get("messages") or asked,  # `messages` includes the turns that solvers added
        "completion": None if content is ABSENT or sample.get("error") else content,  # an error: the sample failed
        "finish_reason": value_at(sample, "output.choices.0.stop_reason"),
    }


def _entries(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield (place, content) of each JSON file in a folder of the archive; of duplicate names the last."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            members = {info.filename: info for info in archive.infolist()}
            for name, info in members.items():
                if name.startswith(folder) and name.endswith(".json"):
                    where = f"{path}, {name}"
                    yield where, _zstandard(raw, info) if info.compress_type == _ZSTANDARD else archive.read(info)
    except (zipfile.BadZipFile, zlib.error, zstandard.ZstdError, EOFError, RuntimeError, OSError) as error:
        raise UserError(f"{where}: cannot be read as a ZIP archive: {error}") from None


def _zstandard(raw: io.BufferedReader, info: zipfile.ZipInfo) -> bytes:
    raw.seek(info.header_offset)
    header = raw.read(_LOCAL_HEADER)
    raw.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR)
    with zstandard.ZstdDecompressor().stream_reader(raw.read(info.compress_size)) as stream:
        content = bytes(stream.read())
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile("its checksum does not match")
    return content


def _is_sample(row: Row) -> bool:
    """Return whether a row is an lm-eval sample, by its keys."""
    return row.keys() >= _SAMPLE and isinstance(row["resps"], list)


def _read_samples(rows: Iterator[tuple[str, Row]], notes: InputNotes) -> Iterator[ForeignRow]:
    """Yield the responses of each document; where a task has several filters, those of the first filter."""
    filters: list[object] = []
    for where, row in rows:
        if not _is_sample(row):
            lacking = " and no ".join(sorted(_SAMPLE - row.keys())) or "list of resps"
            raise UserError(f"{where}: not an lm-eval sample, unlike the rows before: it has no {lacking}")
        filters = filters or [row.get("filter")]
        if row.get("filter") not in filters:
            notes.other_filters += 1
            continue
        requests = cast(list[object], row["resps"])
        responses = [one for request in requests for one in (request if isinstance(request, list) else [request])]
        if not all(isinstance(one, str | None) for one in responses):  # None: the endpoint gave no content
            raise UserError(
                f"{where}: the responses are likelihoods, not text; log the samples of a generate_until task"
            )
        # a target is a known answer or a class; --map answer=target declares it a known answer
        fields = {**prompt_fields(row.get("doc")), "id": row["doc_id"], **_asked(row["arguments"])}
        for number, response in enumerate(responses, start=1):
            yield ForeignRow(where, row, {**fields, "completion": response, "sample": number})


def _asked(arguments: object) -> Row:
    """Return the first request's context: text, or messages as JSON text if it was sent to a chat endpoint."""
    request = _first(arguments)
    context = _first(request) if isinstance(request, list | dict) else request
    context = _first(context) if isinstance(context, list) else context
    if not isinstance(context, str):
        return {}
    return {"messages": context} if context.startswith("[{") and '"role"' in context else {"text": context}


def _first(held: object) -> object:
    """Return the first entry of a list, or of an object with numbered keys (gen_args_0, arg_0)."""
    values = list(held.values()) if isinstance(held, dict) else held
    return values[0] if isinstance(values, list) and values else None
