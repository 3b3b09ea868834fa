"""Reads Inspect logs: `.eval` (a ZIP archive, one JSON file a sample) or `.json`; one completion a sample and epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from extract.errors import UserError
from extract.prompts.columns import ABSENT, value_at
from extract.prompts.rows import place, read_rows
from scoring.readers.archive import entries
from scoring.readers.completion_row import ForeignRow, ReadingNotes, prompt_fields
from scoring.row import Row

_HEAD = 1 << 16  # bytes: the header keys come before the samples


def is_log(path: Path) -> bool:
    """Return whether a file is an Inspect log: by its suffix, or by the first keys of a JSON file."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return path.suffix.lower() == ".eval"
    with path.open("rb") as file:
        head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"{") and all(f'"{key}"'.encode() in head for key in ("version", "status", "eval"))


def read_log(path: Path, notes: ReadingNotes) -> Iterator[ForeignRow]:
    """Yield the samples of a log; a `.json` log is in memory as a whole.

    Raises:
        UserError: the log or a sample cannot be read; names it.
    """
    if not path.is_file():
        raise UserError(f"completions not found: {path}")
    if path.suffix.lower() == ".json":
        for number, sample in read_rows(path, "samples", at="samples", on_repair=notes.mended):
            yield ForeignRow(place(path, number), sample, sample_fields(sample))
        return
    for name, content in entries(path, "samples/"):
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
    return {
        **prompt_fields(sample.get("metadata")),
        "id": sample.get("id"),
        "sample": sample.get("epoch"),
        "messages": sample.get("messages") or asked,  # `messages` includes the turns that solvers added
        "completion": _completion(sample),
        "finish_reason": value_at(sample, "output.choices.0.stop_reason"),
    }


def _completion(sample: Row) -> object:
    """Return the content of the first choice, which Inspect scores; None where the sample failed."""
    content = value_at(sample, "output.choices.0.message.content")
    return None if content is ABSENT or sample.get("error") else content
