"""A case: a prompt whose completions are scored, with its label; and the fields of the rows that it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import ALL_LABELS, RIGHT_ACTIONS, USUAL_ACTION, Prompt
from extract.prompts.rows import is_missing
from scoring.known_answer import Polarity, polarity

Row = Mapping[str, object]  # fields of a row of a file by name; each reader checks those that it uses
BREAKDOWN_COLUMNS = ("category", "epistemic_kind", "persona", "trigger", "source")  # scores are broken down by these
TEXTS = (
    "text intent answer category epistemic_kind persona trigger pair source".split()
)  # fields taken from a row as text


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt with its label, if it has one. Cases of one `group` are not independent."""

    id: str
    group: str
    text: str | None = None
    label: str | None = None
    right_action: str | None = None
    acceptable: tuple[str, ...] = ()
    intent: str | None = None
    answer: str | None = None
    category: str | None = None
    epistemic_kind: str | None = None  # why it is uncertain, or "known fact"
    persona: str | None = None
    trigger: str | None = None
    pair: str | None = None
    earlier: Polarity | None = None  # what the assistant's last turn before the question answers
    source: str | None = None
    messages: tuple[Row, ...] = ()  # the whole conversation before the completion


FROM_PROMPT = tuple(field.name for field in fields(Case) if field.name not in ("group", "epistemic_kind", "earlier"))


def cases_of(prompts: Sequence[Prompt]) -> dict[str, Case]:
    """Return the cases of labelled prompts by id; prompts linked by pair, entity or text form one group."""
    named: dict[int, str] = {}  # a group is named after its first member
    return {
        prompt.id: Case(
            group=named.setdefault(int(group), f"with {prompt.id}"),
            epistemic_kind=_kind(prompt.label, prompt.category, prompt.answer),
            earlier=_earlier(prompt.messages),
            **{name: getattr(prompt, name) for name in FROM_PROMPT},
        )
        for prompt, group in zip(prompts, groups_of(prompts) if prompts else (), strict=True)
    }


def case_of_row(row: Row) -> Case:
    """Return the case of a row with a completion; rows of one pair, else one entity, else the same text, are one group.

    Raises UserError, naming the row's place, where the id is missing, or the label or an action unknown.
    """
    given = {key: value for key, value in row.items() if not is_missing(value)}
    where, identifier = _place(row), identifier_of(row)
    label = _one_of(given.get("label"), "label", ALL_LABELS, where)
    right = _one_of(given.get("right_action"), "right_action", RIGHT_ACTIONS, where)
    texts = {key: to_text(given[key]) if key in given else None for key in TEXTS}
    texts["epistemic_kind"] = texts["epistemic_kind"] or _kind(label, texts["category"], texts["answer"])
    messages = _messages(given.get("messages"))
    if texts["text"] is None and messages:
        texts["text"] = to_text(messages[-1].get("content", ""))
    return Case(
        id=identifier,
        group=_group(given, identifier, texts["text"]),
        label=label,
        right_action=right or (USUAL_ACTION.get(label) if label else None),
        acceptable=_acceptable(given.get("acceptable"), where),
        earlier=_earlier(messages),
        messages=messages,
        **texts,
    )


def _group(given: Row, identifier: str, text: str | None) -> str:
    for key in ("group", "pair", "entity"):
        if key in given:
            return to_text(given[key]) if key == "group" else f"{key} {to_text(given[key])}"
    words = to_text(given.get("messages") or text).encode()
    return f"text {hashlib.blake2b(words, digest_size=8).hexdigest()}" if text else f"id {identifier}"


def _kind(label: str | None, category: str | None, answer: str | None) -> str | None:
    return category if label == "uncertain" else "known fact" if answer else None


def _earlier(messages: Sequence[Row]) -> Polarity | None:
    """Return what the assistant's last turn answers: yes, no, or neither."""
    turns = [message.get("content") for message in messages if message.get("role") == "assistant"]
    return polarity(turns[-1]) if turns and isinstance(turns[-1], str) else None


def _one_of(value: object, field: str, allowed: tuple[str, ...], where: str) -> str | None:
    name = value.strip().lower() if isinstance(value, str) else value
    if name is None or name in allowed:
        return name
    expected = f"one of {', '.join(allowed)} (--columns FILE maps other names to these)"
    raise UserError(f"{where}: field '{field}' is {value!r}; expected {expected}")


def _acceptable(value: object, where: str) -> tuple[str, ...]:
    listed = value.split("|") if isinstance(value, str) else value or ()
    if not isinstance(listed, list | tuple):
        raise UserError(
            f"{where}: field 'acceptable' is {value!r}; expected a list of actions (in CSV: separated by |)"
        )
    return tuple(str(_one_of(action, "acceptable", RIGHT_ACTIONS, where)) for action in listed if action)


def _messages(given: object) -> tuple[Row, ...]:
    """Return the conversation before a completion; empty where its form is unknown."""
    if isinstance(given, str):  # CSV stores a list as JSON text
        with suppress(ValueError):
            given = json.loads(given)
    if not isinstance(given, list | tuple) or not all(isinstance(message, Mapping) for message in given):
        return ()
    return tuple(given)


def to_text(value: object) -> str:
    """Return a value as text that can be stored and printed; 3.0 (an integer in a column with gaps) becomes 3."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not a character


def identifier_of(row: Row) -> str:
    """Return a row's id, as text; where it is missing, a UserError names the row's place."""
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | float) or is_missing(value):
        raise UserError(f"{_place(row)}: field 'id' is {value!r}; expected text or a number")
    return to_text(value)


def _place(row: Row) -> str:
    return str(row.get("place") or f"the completion of {row.get('id')!r}")


def sample_of(row: Row) -> str:
    """Return the sample of a row (its number among completions of one prompt), "" where it has none."""
    value = row.get("sample")
    return "" if is_missing(value) else to_text(value)
