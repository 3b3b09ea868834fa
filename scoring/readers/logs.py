"""Reads the logs of other tools: Inspect's (`.eval`, a ZIP archive of samples, or `.json`) and lm-eval's samples."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from extract.errors import UserError
from extract.prompts.columns import ABSENT, value_at
from extract.prompts.rows import place, read_rows
from scoring.case import Row
from scoring.readers.row import ForeignRow, InputNotes, prompt_fields

_HEAD = 1 << 16  # bytes: the header keys of a log come before its samples
_ZSTANDARD = 93  # compression method of ZIP entries that zipfile lists but cannot read
_LOCAL_HEADER = 30  # bytes; then the name and the extra field, whose lengths are in its last four bytes
_SAMPLE = frozenset({"doc_id", "resps", "arguments"})  # keys of an lm-eval sample


def is_log(path: Path) -> bool:
    """Return whether a file is an Inspect log: by its suffix, or by the first keys of a JSON file."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return path.suffix.lower() == ".eval"
    with path.open("rb") as file:
        head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"{") and all(f'"{key}"'.encode() in head for key in ("version", "status", "eval"))


def read_log(path: Path, notes: InputNotes) -> Iterator[ForeignRow]:
    """Yield the samples of a log; a `.json` log is in memory as a whole."""
    if not path.is_file():
        raise UserError(f"completions not found: {path}")
    if path.suffix.lower() == ".json":
        for number, sample in read_rows(path, "samples", at="samples", on_repair=notes.repaired):
            yield ForeignRow(place(path, number), sample, sample_fields(sample))
        return
    for name, content in _entries(path, "samples/"):
        try:
            sample = json.loads(content)
        except ValueError as error:
            raise UserError(f"{path}, {name}: not valid JSON: {error}") from None
        if not isinstance(sample, dict):
            raise UserError(f"{path}, {name}: expected a JSON object, found {type(sample).__name__}")
        yield ForeignRow(f"{path}, {name}", sample, sample_fields(sample))


def sample_fields(sample: Row) -> Row:
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
    """Yield (name, content) of each JSON file in a folder of the archive; of duplicate names the last."""
    name = ""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            members = {info.filename: info for info in archive.infolist()}
            for name, info in members.items():
                if name.startswith(folder) and name.endswith(".json"):
                    read = _zstandard(raw, info) if info.compress_type == _ZSTANDARD else archive.read(info)
                    yield name, read
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        where = f"{path}, {name}" if name else str(path)
        raise UserError(f"{where}: cannot be read as a ZIP archive: {error}") from None


def _zstandard(raw: io.BufferedReader, info: zipfile.ZipInfo) -> bytes:
    import pyarrow

    raw.seek(info.header_offset)
    header = raw.read(_LOCAL_HEADER)
    raw.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR)
    compressed = pyarrow.BufferReader(raw.read(info.compress_size))
    content = bytes(pyarrow.CompressedInputStream(compressed, "zstd").read())
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile("its checksum does not match")
    return content


def is_sample(row: Row) -> bool:
    """Return whether a row is an lm-eval sample, by its keys."""
    return row.keys() >= _SAMPLE and isinstance(row["resps"], list)


def read_samples(rows: Iterator[tuple[str, Row]], notes: InputNotes) -> Iterator[ForeignRow]:
    """Yield the responses of each document; where a task has several filters, those of the first filter."""
    first = None
    for where, row in rows:
        if not is_sample(row):
            lacking = " and no ".join(sorted(_SAMPLE - row.keys())) or "list of resps"
            raise UserError(f"{where}: not an lm-eval sample, unlike the rows before: it has no {lacking}")
        first = first or {"filter": row.get("filter")}
        if row.get("filter") != first["filter"]:
            notes.other_filters += 1
            continue
        given = row["resps"] if isinstance(row["resps"], list) else []
        responses = [one for request in given for one in (request if isinstance(request, list) else [request])]
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
