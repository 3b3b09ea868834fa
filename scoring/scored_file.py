"""Writes scored.jsonl and scored.parquet: one judged completion a row, streamed, renamed into place at the end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from extract.atomic_write import DeferredErrorFile, atomic_file
from extract.record import Record
from scoring.case import to_text
from scoring.fields import FIELDS, Field
from scoring.ledger import Entry

BATCH = 4096  # rows of Parquet written at once
Write = Callable[[Entry, bool], None]  # an entry, and whether it repeats an earlier one


class ScoredRow(Record):
    """A judged completion as a row of scored.jsonl; unknown fields of its prompt are left out."""

    id: str
    action: str | None
    evidence: str
    by: str | None = None  # where a refusal is no sentence of the model: filter, field
    sample: str | None = None
    label: str | None = None
    right_action: str | None = None
    acceptable: str | None = None  # actions joined by |
    intent: str | None = None
    group: str | None = None
    category: str | None = None
    epistemic_kind: str | None = None
    persona: str | None = None
    trigger: str | None = None
    source: str | None = None
    answer: str | None = None
    text: str | None = None
    completion: str | None = None
    fields: dict[Field, float | None]
    probability: float | None = None  # that the outcome is right; see docs/scoring.md
    declined: float | None = None  # the probability that the request was declined
    confidence: float | None = None  # that the answer is right, as the model states it
    thought: int | None = None  # words of the thinking block
    repeated: bool = False  # an earlier row holds the same completion


CHANCES = ("probability", "declined", "confidence")
TEXT_COLUMNS = tuple(name for name in ScoredRow.model_fields if name not in ("fields", "repeated", "thought", *CHANCES))


@contextmanager
def scored_files(out: Path, *, parquet: bool = False) -> Iterator[Write]:
    """Yield a function that writes an entry to scored.jsonl and, with `parquet`, to scored.parquet.

    Raises:
        UserError: the directory cannot be written, or the disk is full; earlier files stay unchanged.
    """
    with ExitStack() as stack:
        writers = [_jsonl(stack.enter_context(atomic_file(out / "scored.jsonl")))]
        if parquet:
            writers.append(stack.enter_context(_parquet(out)))

        def write(entry: Entry, repeated: bool) -> None:
            row = _row(entry, repeated)
            for writer in writers:
                writer(row)

        yield write


def read_scored(path: Path) -> list[ScoredRow]:
    """Return the rows of a scored.jsonl."""
    with path.open(encoding="utf-8") as lines:
        return [ScoredRow.model_validate_json(line) for line in lines]


def _row(entry: Entry, repeated: bool) -> ScoredRow:
    """Return an entry as a row: id, action, evidence and the five fields always, other fields if known."""
    case = entry.case
    about = {name: getattr(case, name) for name in TEXT_COLUMNS if hasattr(case, name)}
    about |= {"by": entry.by, "sample": entry.sample or None, "acceptable": "|".join(case.acceptable) or None}
    about["completion"] = None if entry.completion is None else to_text(entry.completion)
    known = {name: value for name, value in about.items() if value is not None}
    fields = {name: (entry.fields or {}).get(name) for name in FIELDS}
    row = {**known, "action": entry.action, "evidence": entry.evidence, "fields": fields}
    row |= {} if entry.thought is None else {"thought": entry.thought}
    row |= {name: round(chance, 4) for name in CHANCES if (chance := getattr(entry, name)) is not None}
    return ScoredRow.model_validate(row | ({"repeated": True} if repeated else {}))


def _jsonl(sink: DeferredErrorFile) -> Callable[[ScoredRow], None]:
    def write(row: ScoredRow) -> None:
        sink.write((json.dumps(row.to_dict(), ensure_ascii=False, allow_nan=False) + "\n").encode())
        sink.check()

    return write


@contextmanager
def _parquet(out: Path) -> Iterator[Callable[[ScoredRow], None]]:
    import pyarrow
    import pyarrow.parquet

    scored = pyarrow.struct([(name, pyarrow.float64()) for name in FIELDS])
    columns = [(name, pyarrow.string()) for name in TEXT_COLUMNS] + [("fields", scored)]
    columns += [(name, pyarrow.float64()) for name in CHANCES]
    columns += [("thought", pyarrow.int64()), ("repeated", pyarrow.bool_())]
    schema = pyarrow.schema(columns)
    waiting: list[ScoredRow] = []

    with atomic_file(out / "scored.parquet") as sink:
        writer = pyarrow.parquet.ParquetWriter(_Stream(sink), schema)

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist([row.to_dict() for row in waiting], schema))
            waiting.clear()
            sink.check()

        def write(row: ScoredRow) -> None:
            waiting.append(row)
            if len(waiting) >= BATCH:
                flush()

        try:
            yield write
            flush()
        finally:
            writer.close()


class _Stream(io.RawIOBase):
    """Makes a sink writable for pyarrow."""

    def __init__(self, sink: DeferredErrorFile) -> None:
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._sink.write(data)
