"""YAML configuration files: reading, strict key checks, one-line error messages."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from extract.errors import UserError, shortened

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML was built with it, is ten times faster
KINDS = ("int", "str", "float", "bool")  # pydantic's names of the alternatives of a key that takes several
MOST_CHARS = 100  # of a value in a message
LIMITS = {  # by pydantic's type of error: the limit's name in its context, and what a number has to be
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}
PLAIN = {  # by pydantic's type of error
    "int": "expected a whole number",
    "int_from": "expected a whole number",
    "float": "expected a number",
    "bool": "expected true or false",
    "string": "expected text",
    "string_too_short": "expected text that is not empty",
    "string_sub": "expected text",
    "tuple": "expected a list, such as [a, b]",
    "list": "expected a list, such as [a, b]",
    "dict": "expected keys and values, such as {key: value}",
    "path": "expected the path of a file",
    "finite_number": "expected a finite number",
}


Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A frozen configuration model that refuses unknown keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text, without tags of Python objects; ValueError for a date such as 2026-13-01."""
    return yaml.load(text, Loader=LOADER)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file; UserError, with `what` it is, if it cannot be read as such."""
    try:
        raw = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{what} not found: {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory; give a YAML {what}") from None
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2026-13-01
        raise UserError(f"{path} is not readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        content = "nothing" if raw is None else type(raw).__name__
        raise UserError(f"{path} must hold keys and values, found {content}")
    return raw


def key_and_value(option: str, given: str, example: str) -> tuple[str, Any]:
    """Parse an option's argument `key=value`, with the value in YAML; raises UserError for another form."""
    key, equals, value = given.partition("=")
    if not equals or not key:
        raise UserError(f"{option} takes key=value, got {given!r}; for example {option} {example}")
    try:
        return key, parse_yaml(value) if value else None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-01
        raise UserError(f"{option} {key}: {value!r} is not readable YAML: {' '.join(str(error).split())}") from None


def known_keys(model: type[BaseModel]) -> list[str]:
    """Return every key of a configuration model in dotted form."""
    return [before + name for before, section in _sections(model) for name in section.model_fields]


def _sections(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield a model and those in its keys, each with the dotted keys that lead to it."""
    yield before, model
    for name, info in model.model_fields.items():
        for inner in _models(info.annotation):
            yield from _sections(inner, f"{before}{name}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def nearest_key(key: str, model: type[BaseModel]) -> str | None:
    """Return the known key closest to an unknown one, or None if none is close."""
    others = [known for known in known_keys(model) if not key.startswith(f"{known}.")]  # not its own section
    matches = difflib.get_close_matches(key, others, n=1, cutoff=0.4)
    return matches[0] if matches else None


def as_model(model: type[Model], raw: object, where: str | os.PathLike[str]) -> Model:
    """Return a value from a file or option `where` as a configuration model; UserError names what is wrong."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, model)}") from None


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first error in one line, with its key and, for an unknown key, the nearest known one."""
    # unknown keys come first: usually they are misspelt required keys
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = first["loc"][:-1] if first["loc"] and first["loc"][-1] in KINDS else first["loc"]  # one of several kinds
    where = ".".join(str(part) for part in place) or "the file"
    match first["type"]:
        case "extra_forbidden":
            near = nearest_key(where, model)
            return f"no such key: {where}; " + (f"did you mean {near}?" if near else _keys_near(first["loc"], model))
        case "missing":
            return f"missing key: {where}"
        case "value_error":
            return f"{where}: {first['ctx']['error']}"
        case "literal_error":
            return f"{where}: {_one_of(first)}"
        case "model_type" | "model_attributes_type":
            return f"{where}: {_section(where, first['ctx']['class_name'], model)}, got {_shown(first['input'])}"
        case _:
            alike = [one for one in error.errors() if one["loc"] in (place, *((*place, kind) for kind in KINDS))]
            expected = " or ".join(dict.fromkeys(_expected(one).removeprefix("expected ") for one in alike))
            return f"{where}: expected {expected}, got {_shown(first['input'])}"


def _keys_near(place: Sequence[int | str], model: type[BaseModel]) -> str:
    """Return the keys that the section of an unknown key has; those of the file where that section is unknown too."""
    before = ".".join(str(part) for part in place[:-1] if not isinstance(part, int))
    keys = [key.removeprefix(f"{before}.") for key in known_keys(model) if key.startswith(f"{before}.")]
    names = dict.fromkeys(key.partition(".")[0] for key in keys or known_keys(model))
    return f"the keys are {', '.join(names)}"


def _one_of(error: ErrorDetails) -> str:
    given, allowed = error["input"], re.findall("'([^']*)'", error["ctx"]["expected"])
    near = difflib.get_close_matches(str(given), allowed, n=1, cutoff=0.7)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"expected {'one of ' if len(allowed) > 1 else ''}{', '.join(allowed)}, got {_shown(given)}{hint}"


def _section(where: str, name: str, model: type[BaseModel]) -> str:
    """Return that a key is a section with keys of its own, with one of them as an example."""
    section = next((one for _, one in _sections(model) if one.__name__ == name), None)
    fields = section.model_fields if section else {}
    key = next((key for key, info in fields.items() if info.is_required()), next(iter(fields), "KEY"))
    if where.split(".")[-1].isdecimal():  # an entry of a list
        return f"expected a section with keys of its own, such as {{{key}: ...}}"
    return f"expected a section with keys of its own, such as {where}: {{{key}: ...}} (--set {where}.{key}=...)"


def _expected(error: ErrorDetails) -> str:
    """Return in plain words what pydantic expects; its own words where there are no plainer ones."""
    kind, about = error["type"], error.get("ctx", {})
    if kind in LIMITS:
        limit, words = LIMITS[kind]
        return f"expected a number {words} {about[limit]:g}"
    if kind in ("too_short", "too_long"):
        most = kind == "too_long"
        n = about["max_length" if most else "min_length"]
        return f"expected at {'most' if most else 'least'} {n} {'entry' if n == 1 else 'entries'}"
    return PLAIN.get(kind) or PLAIN.get(kind.rpartition("_")[0]) or str(error["msg"])


def _shown(given: object) -> str:
    """Return a value as in YAML, in one line and cut where it is long."""
    text = "nothing" if given is None else str(given).lower() if isinstance(given, bool) else repr(given)
    return shortened(text, MOST_CHARS)
