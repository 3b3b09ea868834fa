"""Labelled prompts: reads and checks JSONL, JSON, CSV and Parquet files."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

from extract.errors import UserError
from extract.prompts.rows import Row, is_missing, is_text, place, read_rows

Label = Literal["benign", "harmful", "uncertain"]
RightAction = Literal[
    "answer", "answer_with_caveat", "correct_premise", "clarify", "answer_safe_part", "refuse", "abstain"
]
LABELS: tuple[str, ...] = get_args(Label)  # rates are counted on these, and directions are fitted to them
DUAL_USE = "dual_use"  # scored for the right action alone
ALL_LABELS = (*LABELS, DUAL_USE)
RIGHT_ACTIONS: tuple[str, ...] = get_args(RightAction)
ROLES = ("system", "user", "assistant")
ALTERNATIVES = " | "  # between the words of `answer` that are equally right
USUAL_ACTION = {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}  # dual_use prompts name their own


@dataclass(frozen=True, slots=True)
class Prompt:
    """One labelled conversation that ends with the user's turn.

    >>> import refusal
    >>> prompt = refusal.make_prompts(["how do i burn the letters?"], ["benign"], trigger=["burn"])[0]
    >>> prompt.text, prompt.label, prompt.right_action, prompt.trigger
    ('how do i burn the letters?', 'benign', 'answer', 'burn')
    """

    id: str
    messages: tuple[dict[str, str], ...]
    label: str
    right_action: str
    acceptable: tuple[str, ...] = ()
    category: str | None = None
    trigger: str | None = None
    intent: str | None = None
    pair: str | None = None  # group of minimal pairs; a split never separates it
    entity: str | None = None  # who or what the prompt is about (or whole/part); a split never separates it
    template: str | None = None  # the text pattern it was made from; a split never separates it
    persona: str | None = None
    decline: str | None = None  # the way in which it is to be declined, in the labeller's words: policy, instructed
    answer: str | None = None
    split: str | None = None
    source: str | None = None

    @property
    def text(self) -> str:
        """The last user turn."""
        return self.messages[-1]["content"]


FIELDS = tuple(f.name for f in fields(Prompt))
OPTIONAL = tuple(name for name in FIELDS if name not in ("id", "messages", "label", "right_action"))
_HASHED = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
_TEXT = json.JSONEncoder(ensure_ascii=False, default=str).encode


def load_prompts(path: str | os.PathLike[str]) -> list[Prompt]:
    """Read a prompt file; raises UserError, naming the line and the field, where a row is not a valid prompt."""
    path, prompts = Path(path), list[Prompt]()
    first: dict[str, int] = {}
    for line, row in read_rows(path, "prompts"):
        if "label" not in row:
            columns = ", ".join(map(str, row))
            raise UserError(
                f"{place(path, line)}: there is no field 'label', only {columns}; rename the field with "
                "benign, harmful, uncertain or dual_use, or map it with a file like "
                "configs/datasets/xstest.yaml (prompts.datasets)"
            )
        prompt = make_prompt(row, place(path, line))
        if prompt.id in first:
            earlier = place(path, first[prompt.id]).removeprefix(f"{path}, ")
            raise UserError(
                f"{place(path, line)}: field 'id': {prompt.id!r} is already used on {earlier}; ids must be unique"
            )
        first[prompt.id] = line
        prompts.append(prompt)
    if not prompts:
        raise UserError(f"{path} has no prompts; give a file with one prompt per row")
    return prompts


def with_line(prompt: Prompt, line: str) -> Prompt:
    """Return the prompt with a line at the start of its system message, which may be that line alone."""
    first, *others = prompt.messages
    if first["role"] == "system":
        return replace(prompt, messages=({**first, "content": f"{line}\n{first['content']}"}, *others))
    return replace(prompt, messages=({"role": "system", "content": line}, *prompt.messages))


def prompt_row(prompt: Prompt) -> Row:
    """Return a prompt as a row of a prompt file, without the fields that it does not have."""
    values = {name: value for name in FIELDS if (value := getattr(prompt, name)) not in (None, ())}
    return values | {"messages": list(prompt.messages)}


def prompts_hash(prompts: list[Prompt]) -> str:
    """Return a SHA-256 over all fields of the prompts, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:  # one by one, to save memory
        given = {name: getattr(prompt, name) for name in FIELDS}
        if prompt.decline is None:  # a later field: prompts without it keep their hash, and stores theirs
            del given["decline"]
        digest.update(_HASHED(given).encode() + b"\n")
    return digest.hexdigest()


def make_prompt(given: Row, where: str) -> Prompt:
    """Make a prompt from the fields of a row; UserError names `where` and the field if one is missing or invalid."""
    needed = ("id", "text", "label")  # empty text is kept, for the message; so are blanks, which are refused or a value
    row = {k: v for k, v in given.items() if not is_missing(v) or (isinstance(v, str) and (v != "" or k in needed))}
    _refuse_broken_unicode(row, where)
    identifier = row.get("id")
    if isinstance(identifier, bool) or not isinstance(identifier, str | int) or str(identifier).strip() == "":
        raise UserError(f"{where}: field 'id' is {identifier!r}; expected a non-empty string, unique in the file")
    label = _one_of(row, "label", ALL_LABELS, where)
    right = USUAL_ACTION.get(label) if row.get("right_action") is None else None
    right = right or _one_of(row, "right_action", RIGHT_ACTIONS, where)
    texts = {name: _text_or_none(row, name, where) for name in OPTIONAL if name != "acceptable"}
    return Prompt(
        id=str(identifier),
        messages=_messages(row, where),
        label=label,
        right_action=right,
        acceptable=_acceptable(row, where),
        **texts,
    )


def _refuse_broken_unicode(row: Row, where: str) -> None:
    values = {field: row.get(field) for field in ("id", "text", "messages", *OPTIONAL)}
    if is_text(_TEXT(values)):  # all at once, and one by one only for the message
        return
    for field, value in values.items():
        if not is_text(_TEXT(value)):
            raise UserError(
                f"{where}: field '{field}' has a character that is not valid Unicode (half of a surrogate "
                "pair); remove it"
            )


def _one_of(row: Row, field: str, allowed: tuple[str, ...], where: str) -> str:
    value = row.get(field)
    if value not in allowed:
        raise UserError(f"{where}: field '{field}' is {value!r}; expected one of {', '.join(allowed)}")
    return str(value)


def _text_or_none(row: Row, field: str, where: str) -> str | None:
    value = row.get(field)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise UserError(f"{where}: field '{field}' is {type(value).__name__}; expected text")


def _acceptable(row: Row, where: str) -> tuple[str, ...]:
    value = row.get("acceptable") or ()
    listed = value.split("|") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise UserError(f"{where}: field 'acceptable' must be a list of actions (in CSV: separated by |)")
    return tuple(_one_of({"acceptable": item}, "acceptable", RIGHT_ACTIONS, where) for item in listed)


def _messages(row: Row, where: str) -> tuple[dict[str, str], ...]:
    given, text = row.get("messages"), row.get("text")
    if given is None:
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: field 'text' is empty; give the prompt as 'text', or as 'messages'")
        return ({"role": "user", "content": text},)
    if isinstance(given, str):  # CSV holds a list as JSON text
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise UserError(f"{where}: field 'messages' is not a JSON list of messages") from None
    if not isinstance(given, list) or not given:
        raise UserError(f"{where}: field 'messages' must be a non-empty list of {{role, content}}")
    for message in given:
        role, content = (message.get(key) if isinstance(message, dict) else None for key in ("role", "content"))
        parts = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        if parts:  # as for models that also see
            kind = next((kind for kind in parts if kind != "text"), "text")
            raise UserError(f"{where}: field 'messages' holds a part of type {kind!r}; give 'content' as text alone")
        if role not in ROLES or not isinstance(content, str) or not content.strip():
            raise UserError(f"{where}: field 'messages': each needs a role ({', '.join(ROLES)}) and non-empty content")
    if given[-1]["role"] != "user":
        raise UserError(f"{where}: field 'messages' must end with the user's turn")
    return tuple({"role": message["role"], "content": message["content"]} for message in given)
