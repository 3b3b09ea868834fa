"""scored.jsonl and scored.parquet: one judged completion a row, written as they come, whole or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from extract.atomic_write import DeferredErrorFile, atomic_file
from scoring.fields import FIELDS
from scoring.ledger import Entry

TEXT_COLUMNS = (
    "id", "action", "evidence", "sample", "label", "right_action", "acceptable", "intent", "group", "category",
    "epistemic_kind", "persona", "trigger", "source", "answer", "text",
)  # fmt: skip
BATCH = 4096  # rows of Parquet written at once
Write = Callable[[Entry, bool], None]  # an entry, and whether the same one stood there before


@contextmanager
def scored_files(out: Path, *, parquet: bool = False) -> Iterator[Write]:
    """Yield a function that writes an entry to scored.jsonl and, if asked, to scored.parquet.

    Raises:
        UserError: the directory cannot be written, or the disk is full; what stood there before is left as it was.
    """
    with ExitStack() as stack:
        writers = [_jsonl(stack.enter_context(atomic_file(*_names(out, "scored.jsonl"))))]
        if parquet:
            writers.append(stack.enter_context(_parquet(out)))

        def write(entry: Entry, repeated: bool) -> None:
            record = _record(entry, repeated)
            for writer in writers:
                writer(record)

        yield write


def _names(out: Path, name: str) -> tuple[Path, Path]:
    return out / name, out / f"{name}.partial"


def _record(entry: Entry, repeated: bool) -> dict[str, Any]:
    """Return an entry as a row: always id, action, evidence and the five fields; of the rest what is known."""
    case, known = entry.case, {"action": entry.action, "evidence": entry.evidence, "sample": entry.sample or None}
    about = {name: known.get(name) or getattr(case, name, None) for name in TEXT_COLUMNS}
    about["acceptable"] = "|".join(case.acceptable) or None
    kept = {name: value for name, value in about.items() if value is not None or name in ("id", "action", "evidence")}
    fields = {name: (entry.fields or {}).get(name) for name in FIELDS}
    return kept | {"fields": fields} | ({"repeated": True} if repeated else {})


def _jsonl(sink: DeferredErrorFile) -> Callable[[dict[str, Any]], None]:
    def write(record: dict[str, Any]) -> None:
        sink.write((json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode())
        sink.check()

    return write


@contextmanager
def _parquet(out: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    import pyarrow
    import pyarrow.parquet

    scored = pyarrow.struct([(name, pyarrow.float64()) for name in FIELDS])
    columns = [(name, pyarrow.string()) for name in TEXT_COLUMNS] + [("fields", scored), ("repeated", pyarrow.bool_())]
    schema = pyarrow.schema(columns)
    waiting: list[dict[str, Any]] = []

    with atomic_file(*_names(out, "scored.parquet")) as sink:
        writer = pyarrow.parquet.ParquetWriter(_Stream(sink), schema)

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
            waiting.clear()
            sink.check()

        def write(record: dict[str, Any]) -> None:
            waiting.append(record)
            if len(waiting) >= BATCH:
                flush()

        try:
            yield write
            flush()
        finally:
            writer.close()


class _Stream(io.RawIOBase):
    """A sink as the kind of file that pyarrow writes to."""

    def __init__(self, sink: DeferredErrorFile) -> None:
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._sink.write(data)
