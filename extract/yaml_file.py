"""YAML configuration files: reading, strict key checks, one-line error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from extract.errors import UserError


class Strict(BaseModel):
    """A frozen configuration model that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file.

    Args:
        what: the kind of file, for messages such as `configuration not found: mine.yaml`.

    Raises:
        UserError: the file is missing, a directory, unreadable, not UTF-8, not YAML, or not a mapping; in one line.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{what} not found: {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory; give a YAML {what}") from None
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2026-13-01
        raise UserError(f"{path} is not readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else type(raw).__name__
        raise UserError(f"{path} must hold keys and values, found {found}")
    return raw


def key_and_value(option: str, given: str, example: str) -> tuple[str, Any]:
    """Parse an option's argument `key=value`, with the value in YAML.

    Raises:
        UserError: the argument has another form.
    """
    key, equals, value = given.partition("=")
    if not equals or not key:
        raise UserError(f"{option} takes key=value, got {given!r}; for example {option} {example}")
    try:
        return key, yaml.safe_load(value) if value else None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-01
        raise UserError(f"{option} {key}: {value!r} is not readable YAML: {' '.join(str(error).split())}") from None


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return every key of a configuration model in dotted form."""
    keys: list[str] = []
    for name, info in model.model_fields.items():
        keys.append(prefix + name)
        for inner in _models(info.annotation):
            keys += known_keys(inner, f"{prefix}{name}.")
    return keys


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a key's annotation, alone or in a list or mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def nearest_key(key: str, model: type[BaseModel]) -> str | None:
    """Return the known key closest to an unknown one, or None if none is close."""
    matches = difflib.get_close_matches(key, known_keys(model), n=1, cutoff=0.4)
    return matches[0] if matches else None


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first error in one line, with its key and, for an unknown key, the nearest known one."""
    # unknown keys come first: usually they are misspelt required keys
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
