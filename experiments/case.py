"""A case: what is known about a prompt whose completions are scored. From a prompt file, or from a completion's row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from extract.errors import UserError
from extract.prompts import LABELS, RIGHT_ACTIONS, USUAL_ACTION, Prompt

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


def case_of_prompt(prompt: Prompt, group: str) -> Case:
    """Return the case of a labelled prompt."""
    return Case(
        prompt.id, group, prompt.text, prompt.label, prompt.right_action, prompt.acceptable, prompt.intent,
        prompt.answer, prompt.category, _kind(None, prompt.label, prompt.category, prompt.answer), prompt.persona,
        prompt.trigger, prompt.source, trigger_known=True,
    )  # fmt: skip


def case_of_row(row: Mapping[str, Any]) -> Case:
    """Return the case that a row with a completion describes itself.

    Rows of one pair, else of one entity, else of the same words, are one group.

    Raises:
        UserError: the label or an action is none of those there are; names the row's place.
    """
    given = {key: value for key, value in row.items() if value is not None and value != ""}
    label = _one_of(given, "label", LABELS)
    right = _one_of(given, "right_action", RIGHT_ACTIONS) or (USUAL_ACTION[label] if label else None)
    acceptable = _listed(given.get("acceptable"))
    for action in acceptable:
        _one_of({"acceptable": action, "place": row.get("place")}, "acceptable", RIGHT_ACTIONS)
    said = {name: None if given.get(name) is None else str(given[name]) for name in
            ("text", "intent", "answer", "category", "persona", "trigger", "source")}  # fmt: skip
    kind = _kind(given.get("epistemic_kind"), label, said["category"], said["answer"])
    return Case(
        id=str(row["id"]), group=_group(given), label=label, right_action=right, acceptable=acceptable,
        epistemic_kind=kind, trigger_known="trigger" in row, **said,
    )  # fmt: skip


def group_names(ids: Sequence[str], groups: np.ndarray) -> list[str]:
    """Name numbered groups after the first of their members; (n,)."""
    first: dict[int, str] = {}
    return [first.setdefault(int(group), f"with {name}") for name, group in zip(ids, groups, strict=True)]


def _group(given: Mapping[str, Any]) -> str:
    for name in ("group", "pair", "entity"):
        if name in given:
            return str(given[name]) if name == "group" else f"{name} {given[name]}"
    if given.get("text"):
        said = str(given.get("messages") or given["text"]).encode("utf-8", "surrogatepass")
        return f"text {hashlib.blake2b(said, digest_size=8).hexdigest()}"
    return f"id {given['id']}"


def _kind(given: object, label: str | None, category: str | None, answer: str | None) -> str | None:
    if given is not None:
        return str(given)
    if label == "uncertain":
        return category
    return "known fact" if answer else None


def _one_of(given: Mapping[str, Any], field: str, allowed: tuple[str, ...]) -> str | None:
    value = given.get(field)
    if value is not None and value not in allowed:
        raise UserError(f"{given.get('place')}: field '{field}' is {value!r}; expected one of {', '.join(allowed)}")
    return value


def _listed(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part for part in value.split("|") if part)
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()
