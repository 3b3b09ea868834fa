"""Wraps of a request, as text: a simple role-play, or milder words."""

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

Wrap = Callable[[str], str]  # request -> wrapped request; returns the same text if it changes nothing
REQUEST = "{request}"
SHIPPED = Path("configs/wraps.yaml")


def load_wraps(path: Path | None = None) -> dict[str, Wrap]:
    """Read named wraps, by default the shipped ones (format: configs/wraps.yaml).

    Raises:
        UserError: the file is missing or malformed, a role-play has no {request}, or a euphemism is not made of words;
            names the file and the wrap.
    """
    file = resolve_shipped(path or SHIPPED)
    given = read_yaml(file, "wraps file")
    return {str(name): _wrap(wrap, f"{file}: wrap {name!r}") for name, wrap in given.items()}


def wrap_prompt(prompt: Prompt, name: str, wrap: Wrap) -> Prompt | None:
    """Wrap the last user turn of a conversation; None if the wrap changes nothing."""
    words = wrap(prompt.text)
    if words == prompt.text:
        return None
    return replace(
        prompt, id=f"{prompt.id}/{name}", messages=(*prompt.messages[:-1], {"role": "user", "content": words})
    )


def role_play(template: str, request: str) -> str:
    """Insert the request in place of {request} in the template."""
    return template.replace(REQUEST, request)


def euphemism(words: Mapping[str, str], request: str) -> str:
    """Replace whole words by milder ones and keep their case; `words` are in lower case.

    All words are replaced in one pass, so that no replacement is replaced again.
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
            raise UserError(f"{where} has no place for the request; write {REQUEST} at that place")
        return partial(role_play, given)
    if not isinstance(given, dict):
        raise UserError(
            f"{where} is {'empty' if given is None else type(given).__name__}; expected a text with "
            f"{REQUEST}, or a map from words to milder words"
        )
    for word, milder in given.items():
        if not (isinstance(word, str) and isinstance(milder, str) and word.strip() and milder.strip()):
            raise UserError(
                f"{where}: {word!r}: {milder!r}; expected a word and milder words for it "
                "(in quotes if YAML reads them as something else)"
            )
    return partial(euphemism, {word.strip().lower(): milder.strip() for word, milder in given.items()})
