"""The keys of a declared configuration, and what is wrong with a mistaken one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List every key of a configuration model in dotted form."""
    keys: list[str] = []
    for name, info in model.model_fields.items():
        keys.append(prefix + name)
        for inner in _models(info.annotation):
            keys += known_keys(inner, f"{prefix}{name}.")
    return keys


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models a key holds, by itself or in a list or mapping of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def nearest_key(key: str, model: type[BaseModel]) -> str | None:
    """Return the known key closest to a mistaken one, or None if none is close."""
    matches = difflib.get_close_matches(key, known_keys(model), n=1, cutoff=0.4)
    return matches[0] if matches else None


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Say in one line what the first thing wrong is, naming the key and, for an unknown one, the nearest known."""
    # an unknown key goes first: mostly it is the missing one, mistyped
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    match first["type"]:
        case "extra_forbidden":
            near = nearest_key(where, model)
            return f"no such key: {where}" + (f"; did you mean {near}?" if near else "")
        case "missing":
            return f"missing key: {where}"
        case "value_error":
            return f"{where}: {first['ctx']['error']}"
        case _:
            return f"{where}: {first['msg']}, got {first['input']!r}"
