"""A case: what is known about a prompt whose completions are scored. From a prompt file, or from a completion's row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from extract.errors import UserError
from extract.prompts.prompt import LABELS, RIGHT_ACTIONS, USUAL_ACTION, Prompt

DESCRIBING = ("category", "epistemic_kind", "persona", "trigger", "source")  # what scores are broken down by


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt with its label, if it has one. `group`: cases with the same one are not independent."""

    id: str
    group: str
    text: str | None = None
    label: str | None = None
    right_action: str | None = None
    acceptable: tuple[str, ...] = ()
    intent: str | None = None
    answer: str | None = None
    category: str | None = None
    epistemic_kind: str | None = None  # what makes it uncertain, or "known fact"
    persona: str | None = None
    trigger: str | None = None
    source: str | None = None
    trigger_known: bool = False  # an absent trigger word was looked for, rather than never asked after
    messages: tuple[Mapping[str, Any], ...] = ()  # the whole conversation before the completion


def case_of_prompt(prompt: Prompt, group: str, *, trigger_known: bool = True) -> Case:
    """Return the case of a labelled prompt."""
    return Case(
        prompt.id, group, prompt.text, prompt.label, prompt.right_action, prompt.acceptable, prompt.intent,
        prompt.answer, prompt.category, _kind(None, prompt.label, prompt.category, prompt.answer), prompt.persona,
        prompt.trigger, prompt.source, trigger_known, prompt.messages,
    )  # fmt: skip


def case_of_row(row: Mapping[str, Any]) -> Case:
    """Return the case that a row with a completion describes itself.

    Rows of one pair, else of one entity, else of the same words, are one group.

    Raises:
        UserError: the id is none, or the label or an action is none of those there are; names the row's place.
    """
    given = {key: value for key, value in row.items() if not _is_nothing(value)}
    where = place_of(row)
    identifier = identifier_of(row)
    label = _one_of(given.get("label"), "label", LABELS, where)
    right = _one_of(given.get("right_action"), "right_action", RIGHT_ACTIONS, where)
    said = {key: None if given.get(key) is None else plain(given[key]) for key in
            ("text", "intent", "answer", "category", "persona", "trigger", "source")}  # fmt: skip
    messages = _messages(given.get("messages"))
    if said["text"] is None and messages:
        said["text"] = plain(messages[-1].get("content", ""))
    return Case(
        id=identifier, group=_group(given, identifier, said["text"]), label=label,
        right_action=right or (USUAL_ACTION[label] if label else None),
        acceptable=_acceptable(given.get("acceptable"), where),
        epistemic_kind=_kind(given.get("epistemic_kind"), label, said["category"], said["answer"]),
        trigger_known="trigger" in row, messages=messages, **said,
    )  # fmt: skip


def group_names(ids: Sequence[str], groups: np.ndarray) -> list[str]:
    """Name numbered groups after the first of their members; (n,)."""
    first: dict[int, str] = {}
    return [first.setdefault(int(group), f"with {name}") for name, group in zip(ids, groups, strict=True)]


def plain(value: object) -> str:
    """Return a value as text that can be stored and printed: 3.0 (a number in a column with gaps) is 3."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is no character


def place_of(row: Mapping[str, Any]) -> str:
    """Say where a row stands, for messages."""
    return str(row.get("place") or f"the completion of {row.get('id')!r}")


def identifier_of(row: Mapping[str, Any]) -> str:
    """Return a row's id, as text.

    Raises:
        UserError: it has none; names the row's place.
    """
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float) or _is_nothing(value):
        raise UserError(f"{place_of(row)}: field 'id' is {value!r}; expected a text or a number")
    return plain(value)


def sample_of(row: Mapping[str, Any]) -> str:
    """Return which of several completions of one prompt a row is, "" where it does not say."""
    value = row.get("sample")
    return "" if _is_nothing(value) else plain(value)


def _group(given: Mapping[str, Any], identifier: str, text: str | None) -> str:
    for key in ("group", "pair", "entity"):
        if key in given:
            return plain(given[key]) if key == "group" else f"{key} {plain(given[key])}"
    if text:
        said = plain(given.get("messages") or text).encode()
        return f"text {hashlib.blake2b(said, digest_size=8).hexdigest()}"
    return f"id {identifier}"


def _kind(given: object, label: str | None, category: str | None, answer: str | None) -> str | None:
    if given is not None:
        return plain(given)
    if label == "uncertain":
        return category
    return "known fact" if answer else None


def _is_nothing(value: object) -> bool:
    """Say whether a field is left open, as each format writes it: null, an empty cell, NaN."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _one_of(value: object, field: str, allowed: tuple[str, ...], where: str) -> str | None:
    told = value.strip().lower() if isinstance(value, str) else value
    if told is not None and told not in allowed:
        raise UserError(f"{where}: field '{field}' is {value!r}; expected one of {', '.join(allowed)} (--columns FILE "
                        "maps other words to these)")  # fmt: skip
    return None if told is None else str(told)


def _acceptable(value: object, where: str) -> tuple[str, ...]:
    listed = value.split("|") if isinstance(value, str) else value or ()
    if not isinstance(listed, list | tuple):
        raise UserError(
            f"{where}: field 'acceptable' is {value!r}; expected a list of actions (in CSV: separated by |)"
        )
    return tuple(str(_one_of(action, "acceptable", RIGHT_ACTIONS, where)) for action in listed if action)


def _messages(given: object) -> tuple[Mapping[str, Any], ...]:
    """Return the conversation before a completion; none where it is given in a form unknown."""
    if isinstance(given, str):  # CSV holds a list as JSON text
        with suppress(ValueError):
            given = json.loads(given)
    if not isinstance(given, list | tuple) or not all(isinstance(message, Mapping) for message in given):
        return ()
    return tuple(given)
