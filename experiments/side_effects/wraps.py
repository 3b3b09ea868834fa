"""Wrapping a request: in a simple role-play, or in milder words. Text to text only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.shipped import resolve_shipped
from extract.yaml_file import read_yaml

Wrap = Callable[[str], str]  # a request to the wrapped request; one that it does not touch comes back as it was
REQUEST = "{request}"
SHIPPED = Path("configs/wraps.yaml")


def load_wraps(path: Path | None = None) -> dict[str, Wrap]:
    """Read named wraps, the shipped ones unless a file is given (its form: configs/wraps.yaml).

    Raises:
        UserError: the file is missing or malformed, a role-play has no place for the request, or a euphemism is not
            made of words; names the file and the wrap.
    """
    found = resolve_shipped(path or SHIPPED)
    given = read_yaml(found, "wraps file")
    return {str(name): _wrap(wrap, f"{found}: wrap {name!r}") for name, wrap in given.items()}


def wrap_prompt(prompt: Prompt, name: str, wrap: Wrap) -> Prompt | None:
    """Wrap the last user turn of a conversation; None where that changes nothing, which is then no wrapped prompt."""
    words = wrap(prompt.text)
    if words == prompt.text:
        return None
    return replace(
        prompt, id=f"{prompt.id}/{name}", messages=(*prompt.messages[:-1], {"role": "user", "content": words})
    )


def role_play(template: str, request: str) -> str:
    """Put the request where the template has {request}."""
    return template.replace(REQUEST, request)


def euphemism(words: Mapping[str, str], request: str) -> str:
    """Replace whole words by milder ones, keeping their case; `words` are in lower case.

    All are replaced in one go, so that what one of them became is not taken for another.
    """
    any_of = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    if not any_of:
        return request
    return re.sub(rf"(?<!\w)(?:{any_of})(?!\w)", lambda m: _cased(words[m[0].lower()], m[0]), request, flags=re.I)


def _cased(milder: str, word: str) -> str:
    if len(word) > 1 and word.isupper():
        return milder.upper()
    return milder[0].upper() + milder[1:] if word[0].isupper() else milder


def _wrap(given: Any, where: str) -> Wrap:
    if isinstance(given, str):
        if REQUEST not in given:
            raise UserError(f"{where} has no place for the request; write {REQUEST} where it goes")
        return partial(role_play, given)
    if not isinstance(given, dict):
        raise UserError(f"{where} is {'nothing' if given is None else type(given).__name__}; expected a text with "
                        f"{REQUEST}, or words and the milder ones for each")  # fmt: skip
    for word, milder in given.items():
        if not (isinstance(word, str) and isinstance(milder, str) and word.strip() and milder.strip()):
            raise UserError(f"{where}: {word!r}: {milder!r}; expected a word and milder ones for it "
                            "(in quotes, where YAML takes them for something else)")  # fmt: skip
    return partial(euphemism, {word.strip().lower(): milder.strip() for word, milder in given.items()})
