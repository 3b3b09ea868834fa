"""lm-evaluation-harness's `samples_*.jsonl`: the model's raw responses to generate_until tasks, all repeats of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from extract.errors import UserError
from scoring.readers.completion_row import Given, told
from scoring.readers.remarks import Remarks

_KEYS = frozenset({"doc_id", "resps", "arguments"})


def is_sample(row: Mapping[str, Any]) -> bool:
    """Say whether a row is a sample of the harness, by its keys."""
    return row.keys() >= _KEYS and isinstance(row["resps"], list)


def read_samples(rows: Iterator[tuple[str, Mapping[str, Any]]], remarks: Remarks) -> Iterator[Given]:
    """Yield the responses of each document; where a task has several filters, those of the first, once.

    Raises:
        UserError: a row is no sample, or its responses are likelihoods and no text; names the place.
    """
    first = None
    for where, row in rows:
        if not is_sample(row):
            raise UserError(f"{where}: not one of lm-eval's samples, as those before: it has no {_lacking(row)}")
        first = first or {"filter": row.get("filter")}
        if row.get("filter") != first["filter"]:
            remarks.other_filters += 1
            continue
        for number, response in enumerate(_responses(row, where), start=1):
            yield Given(where, row, _fields(row) | {"completion": response, "sample": number})


def _lacking(row: Mapping[str, Any]) -> str:
    return " and no ".join(sorted(_KEYS - row.keys())) or "list of resps"


def _responses(row: Mapping[str, Any], where: str) -> list[str]:
    responses = [one for request in row["resps"] for one in (request if isinstance(request, list) else [request])]
    if not all(isinstance(one, str) for one in responses):
        raise UserError(f"{where}: the responses are likelihoods, no text; log the samples of a generate_until task")
    return responses


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    # a target may be a known answer as well as a class: --map answer=target says that it is the former
    return {**told(row.get("doc")), "id": row["doc_id"], **_asked(row["arguments"])}


def _asked(arguments: Any) -> dict[str, Any]:
    """Return the first request's context: a text, or where it went to a chat endpoint, messages as JSON text."""
    request = _first(arguments)
    context = _first(request) if isinstance(request, list | dict) else request
    context = _first(context) if isinstance(context, list) else context
    if not isinstance(context, str):
        return {}
    return {"messages": context} if _is_chat(context) else {"text": context}


def _is_chat(context: str) -> bool:
    return context.startswith("[{") and '"role"' in context


def _first(held: Any) -> Any:
    """Return the first entry of a list, or of an object that numbers its own (gen_args_0, arg_0)."""
    values = list(held.values()) if isinstance(held, dict) else held
    return values[0] if isinstance(values, list) and values else None
