"""A row of a completions file before the column map is applied; chat turns; and notes of problems of the input."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from extract.errors import UserError
from extract.prompts.prompt import OPTIONAL, Prompt
from extract.prompts.rows import EncodingRepair
from extract.record import Record
from scoring.case import Row

T = TypeVar("T")
PROMPT_FIELDS = ("label", "right_action", "epistemic_kind", "group", *OPTIONAL)
REFUSED = ("refusal", "finish_reason")  # report a refusal outside the completion
FIELDS = ("id", "sample", "text", "messages", "completion", *PROMPT_FIELDS, *REFUSED)
AHEAD = 1000  # rows held until it is known that a file can be used
NAMED = 5  # ids that a note names
_TEXT_PARTS = ("text", "output_text", "input_text", "refusal")  # other parts are thoughts, tools and pictures


@dataclass(frozen=True)
class ForeignRow:
    """A row: `columns` under the file's names, and `fields` that its format maps to ours."""

    place: str
    columns: Row
    fields: Row


class InputNote(Record):
    """A problem of the input: the number of completions and their first few ids."""

    n: int
    first: tuple[str, ...] = ()


@dataclass
class InputNotes:
    """Problems of the input, each counted, with its first few ids; no completion is dropped."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[str, ...]] = field(default_factory=dict)
    windows_1252: int = 0  # rows (in JSON: lines) with bytes that are not UTF-8, read as Windows-1252
    replaced: int = 0  # with invalid characters, replaced by U+FFFD
    other_filters: int = 0  # same responses under another lm-eval filter, left out
    guessed: Counter[str] = field(default_factory=Counter)  # rows with a field whose column was guessed, by guess

    def note(self, what: str, identifier: str) -> None:
        self.counts[what] += 1
        self.first[what] = (*self.first.get(what, ()), identifier)[:NAMED]

    def repaired(self, how: EncodingRepair) -> None:
        setattr(self, how, getattr(self, how) + 1)

    def record(self) -> dict[str, InputNote]:
        """Return each count with the first ids, and the repairs made while reading."""
        repairs = {
            "not UTF-8, read as Windows-1252 (--encoding names another)": self.windows_1252,
            "with characters that are no valid Unicode, replaced": self.replaced,
            "the same responses under another filter, left out": self.other_filters,
            **self.guessed,
        }
        noted = {what: InputNote(n=n, first=self.first[what]) for what, n in self.counts.items()}
        return noted | {what: InputNote(n=n, first=()) for what, n in repairs.items() if n}


def held_until(rows: Iterable[T], enough: Callable[[T], bool], refusal: Callable[[], UserError]) -> Iterator[T]:
    """Pass rows on once one of them was enough, holding AHEAD at most; where none was, raise the refusal."""
    ahead, passed = deque[T](), False
    for row in rows:
        passed = passed or enough(row)
        ahead.append(row)
        while ahead and (passed or len(ahead) > AHEAD):
            yield ahead.popleft()
    if not passed:
        raise refusal()


def attributes_of(prompt: Prompt, group: str) -> Row:
    """Return the fields of a prompt that `prompt_fields` reads back from another tool's log."""
    known = {name: getattr(prompt, name, None) for name in PROMPT_FIELDS} | {"group": group}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items() if value}


def prompt_fields(attributes: object) -> Row:
    """Return the attributes of another tool's prompt that have our field names and are text, numbers or lists."""
    held = attributes if isinstance(attributes, Mapping) else {}
    known = {name: held[name] for name in PROMPT_FIELDS if name in held}
    kinds = {name: str | int | float | list if name == "acceptable" else str | int | float for name in known}
    return {name: value for name, value in known.items() if isinstance(value, kinds[name])}


def content_text(content: object) -> str | None:
    """Return the text of a content, without thoughts and tools; None if it is neither text nor a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        return None
    if not all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in content):
        return None
    parts = [part for part in content if part["type"] in _TEXT_PARTS]
    texts = (part.get("refusal" if part["type"] == "refusal" else "text") for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def turns(given: object, where: str) -> list[dict[str, str]]:
    """Return messages with `role` and `content` only; in a table the list is JSON text."""
    held = _loaded(given)
    if not isinstance(held, list | tuple):
        raise UserError(f"{where}: field 'messages' is {type(given).__name__}; expected a list of {{role, content}}")
    messages = []
    for message in held:
        turn = message if isinstance(message, Mapping) else {}
        role, content = turn.get("role"), content_text(turn.get("content"))
        if content == "" and isinstance(turn.get("refusal"), str):
            content = turn["refusal"]
        if not isinstance(role, str) or content is None:
            raise UserError(
                f"{where}: field 'messages': each needs a role, and content that is text or a list of parts"
            )
        messages.append({"role": role, "content": content})
    return messages


def _loaded(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except json.JSONDecodeError:
        return None


def is_transcript(given: object) -> bool:
    """Return whether messages end with the assistant's turn."""
    held = _loaded(given)
    last = held[-1] if isinstance(held, list | tuple) and held else None
    return isinstance(last, Mapping) and last.get("role") == "assistant"
