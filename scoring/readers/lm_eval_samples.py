"""Reads lm-evaluation-harness's `samples_*.jsonl`: all raw responses to generate_until tasks."""

from __future__ import annotations

from collections.abc import Iterator

from extract.errors import UserError
from scoring.readers.completion_row import ForeignRow, ReadingNotes, prompt_fields
from scoring.row import Row

_KEYS = frozenset({"doc_id", "resps", "arguments"})


def is_sample(row: Row) -> bool:
    """Return whether a row is an lm-eval sample, by its keys."""
    return row.keys() >= _KEYS and isinstance(row["resps"], list)


def read_samples(rows: Iterator[tuple[str, Row]], notes: ReadingNotes) -> Iterator[ForeignRow]:
    """Yield the responses of each document; where a task has several filters, those of the first filter.

    Raises:
        UserError: a row is not a sample, or its responses are likelihoods, not text; names the place.
    """
    first = None
    for where, row in rows:
        if not is_sample(row):
            raise UserError(f"{where}: not an lm-eval sample, unlike the rows before: it has no {_lacking(row)}")
        first = first or {"filter": row.get("filter")}
        if row.get("filter") != first["filter"]:
            notes.other_filters += 1
            continue
        for number, response in enumerate(_responses(row, where), start=1):
            yield ForeignRow(where, row, {**_fields(row), "completion": response, "sample": number})


def _lacking(row: Row) -> str:
    return " and no ".join(sorted(_KEYS - row.keys())) or "list of resps"


def _responses(row: Row, where: str) -> list[str | None]:
    """Return the responses; None where the endpoint gave no content."""
    given = row["resps"] if isinstance(row["resps"], list) else []
    responses = [one for request in given for one in (request if isinstance(request, list) else [request])]
    if not all(isinstance(one, str | None) for one in responses):
        raise UserError(f"{where}: the responses are likelihoods, not text; log the samples of a generate_until task")
    return responses


def _fields(row: Row) -> Row:
    # a target is a known answer or a class; --map answer=target declares it a known answer
    return {**prompt_fields(row.get("doc")), "id": row["doc_id"], **_asked(row["arguments"])}


def _asked(arguments: object) -> Row:
    """Return the first request's context: text, or messages as JSON text if it was sent to a chat endpoint."""
    request = _first(arguments)
    context = _first(request) if isinstance(request, list | dict) else request
    context = _first(context) if isinstance(context, list) else context
    if not isinstance(context, str):
        return {}
    return {"messages": context} if _is_chat(context) else {"text": context}


def _is_chat(context: str) -> bool:
    return context.startswith("[{") and '"role"' in context


def _first(held: object) -> object:
    """Return the first entry of a list, or of an object with numbered keys (gen_args_0, arg_0)."""
    values = list(held.values()) if isinstance(held, dict) else held
    return values[0] if isinstance(values, list) and values else None
