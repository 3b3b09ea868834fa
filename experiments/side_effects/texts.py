"""The texts that side effects need: plain prose, and wraps of a request (a simple role-play, or milder words)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.run.config import DissociateConfig
from extract.errors import UserError
from extract.keyed_file import file_hash
from extract.prompts.prompt import Prompt
from extract.shipped import resolve_shipped
from extract.yaml_file import read_yaml

Wrap = Callable[[str], str]  # request -> wrapped request; returns the same text if it changes nothing
REQUEST = "{request}"
WRAPS = Path("configs/wraps.yaml")
PLAIN_TEXT = Path("configs/plain_text.txt")


def load_passages(path: Path | None = None) -> list[str]:
    """Read passages, by default the shipped ones: one for each paragraph; lines that begin with # are left out.

    Raises:
        UserError: the file is missing, unreadable or holds no passage; names it and the remedy.
    """
    file = resolve_shipped(path or PLAIN_TEXT)
    remedy = "give a UTF-8 text file with one passage a paragraph (dissociate.plain_text)"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read the plain text {file}: {error.strerror}; {remedy}") from None
    except UnicodeDecodeError:
        raise UserError(f"the plain text {file} is not UTF-8; {remedy}") from None
    kept = "\n".join(line.strip() for line in lines if not line.startswith("#"))
    passages = [" ".join(paragraph.split()) for paragraph in kept.split("\n\n") if paragraph.strip()]
    if not passages:
        raise UserError(f"the plain text {file} holds no passage; {remedy}")
    return passages


def text_hashes(config: DissociateConfig) -> dict[str, str | None]:
    """Check the files that side effects need, before a long run, and return the SHA-256 of each; UserError if bad."""
    load_wraps(config.wraps)
    load_passages(config.plain_text)
    given = {"wraps": config.wraps or WRAPS, "plain_text": config.plain_text or PLAIN_TEXT}
    return {name: file_hash(resolve_shipped(path)) for name, path in given.items()}


# -- wraps ----


def load_wraps(path: Path | None = None) -> dict[str, Wrap]:
    """Read named wraps, by default the shipped ones (format: configs/wraps.yaml).

    Raises:
        UserError: the file is missing or malformed, a role-play has no {request}, or a euphemism is not made of words;
            names the file and the wrap.
    """
    file = resolve_shipped(path or WRAPS)
    given = read_yaml(file, "wraps file")
    return {str(name): _wrap(wrap, f"{file}: wrap {name!r}") for name, wrap in given.items()}


def wrap_prompt(prompt: Prompt, name: str, wrap: Wrap) -> Prompt | None:
    """Wrap the last user turn of a conversation; None if the wrap changes nothing."""
    words = wrap(prompt.text)
    if words == prompt.text:
        return None
    messages = *prompt.messages[:-1], {"role": "user", "content": words}
    return replace(prompt, id=f"{prompt.id}/{name}", messages=messages)


def euphemism(words: Mapping[str, str], request: str) -> str:
    """Replace whole words by milder ones and keep their case, all in one pass; `words` are in lower case."""
    any_of = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    if not any_of:
        return request

    def cased(match: re.Match[str]) -> str:
        word, milder = match[0], words[match[0].lower()]
        if len(word) > 1 and word.isupper():
            return milder.upper()
        return milder[0].upper() + milder[1:] if word[0].isupper() else milder

    return re.sub(rf"(?<!\w)(?:{any_of})(?!\w)", cased, request, flags=re.I)


def _wrap(given: Any, where: str) -> Wrap:
    if isinstance(given, str):
        if REQUEST not in given:
            raise UserError(f"{where} has no place for the request; write {REQUEST} at that place")
        return partial(given.replace, REQUEST)
    if not isinstance(given, dict):
        what = "empty" if given is None else type(given).__name__
        raise UserError(f"{where} is {what}; expected a text with {REQUEST}, or a map from words to milder words")
    for word, milder in given.items():
        if not (isinstance(word, str) and isinstance(milder, str) and word.strip() and milder.strip()):
            raise UserError(
                f"{where}: {word!r}: {milder!r}; expected a word and milder words for it "
                "(in quotes if YAML reads them as something else)"
            )
    return partial(euphemism, {word.strip().lower(): milder.strip() for word, milder in given.items()})
