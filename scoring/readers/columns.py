"""A row of a completions file, its chat turns and problems, and which column holds which field.

That is by `--map FIELD=COLUMN`, by a YAML file, or guessed from the column's name.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import ValidationError

from extract.errors import UserError
from extract.prompts.columns import ABSENT, Column, ColumnMapping, Value, value_at
from extract.prompts.prompt import OPTIONAL, Prompt
from extract.prompts.rows import EncodingRepair
from extract.record import Record
from extract.yaml_file import explain, read_yaml
from scoring.case import Row

T = TypeVar("T")
PROMPT_FIELDS = ("label", "right_action", "epistemic_kind", "group", *OPTIONAL)
REFUSED = ("refusal", "finish_reason")  # report a refusal outside the completion
FIELDS = ("id", "sample", "text", "messages", "completion", *PROMPT_FIELDS, *REFUSED)
AHEAD = 1000  # rows held until it is known that a file can be used
NAMED = 5  # ids that a note names
_TEXT_PARTS = ("text", "output_text", "input_text", "refusal")  # other parts are thoughts, tools and pictures
ROW_NUMBER = "#"  # names the row's number in its file, unless a column has this name
# words in the names of columns that hold completions, the most likely first
_LIKELY = ("completion", "response", "output", "generation", "generated", "prediction", "reply", "answer", "result")
_INNER = ("content", "text")  # keys under which chat formats store text
_MAX_COLUMNS = 2000  # nested columns that are searched for similar names
_LISTED = 30  # columns named in a message
ROWS = 100  # read for a guess
# usual names of columns, lower case, with _ for spaces and hyphens; `answer` is a prompt's known answer
USUAL = {
    "id": "prompt_id question_id example_id idx index uid",
    "text": "prompt question instruction input query request user_prompt",
    "completion": "response output generation generated_text model_output model_response model_answer prediction reply",
}


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


class ColumnMap(ColumnMapping):
    """Maps a file's columns to fields of a completion. Fields that it does not name are read by their own names."""

    known: ClassVar[tuple[str, ...]] = FIELDS
    what: ClassVar[str] = "a completion"

    @property
    def sources(self) -> dict[str, Column | Value]:
        return {**self.columns, **self.constants}


def read_column_map(options: Sequence[str] = (), file: Path | None = None) -> ColumnMap:
    """Read a map from `FIELD=COLUMN` options and a YAML file; options override the file."""
    given = read_yaml(file, "column map") if file else {}
    columns: dict[str, Column] = {}
    for option in options:
        field, equals, column = (part.strip() for part in option.partition("="))
        if not (field and equals and column):
            raise UserError(f"--map takes FIELD=COLUMN, got {option!r}; for instance --map completion=response")
        if field in columns:
            raise UserError(f"--map names {field!r} twice: {columns[field].column!r} and {column!r}")
        columns[field] = Column(column=column)
    try:
        read = ColumnMap.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{file}: {explain(error, ColumnMap)}") from None
    try:
        named = ColumnMap(columns=columns)
    except ValidationError as error:
        raise UserError(f"--map: {explain(error, ColumnMap).removeprefix('columns: ')}") from None
    constants = {field: value for field, value in read.constants.items() if field not in named.columns}
    return ColumnMap(columns=read.columns | named.columns, constants=constants)


def checked(path: Path, rows: Iterable[ForeignRow], columns: ColumnMap) -> Iterator[ForeignRow]:
    """Pass rows on once every column of the map and a completion have been seen; else a UserError says what to type."""
    needed = ((name, field) for field, source in columns.columns.items() for name in (source.column, *source.unless))
    wanted = {name: field for name, field in needed if name != ROW_NUMBER}
    columns_seen: dict[str, object] = {}
    there: dict[str, None] = {}
    answered, dialogue = "completion" in columns.sources, columns.columns.get("messages")

    def complete(row: ForeignRow) -> bool:
        nonlocal wanted, answered
        wanted = {name: field for name, field in wanted.items() if value_at(row.columns, name) is ABSENT}
        messages = value_at(row.columns, dialogue.column) if dialogue else row.fields.get("messages")
        answered = answered or "completion" in row.fields or is_transcript(messages)
        if len(columns_seen) < _MAX_COLUMNS:
            columns_seen.update(islice(_nested(row.columns), _MAX_COLUMNS))
            there.update(dict.fromkeys(row.columns))
        return answered and not wanted

    def refusal() -> UserError:
        if not columns_seen:
            return UserError(f"{path} holds no completions")
        if wanted:
            name, field = next(iter(wanted.items()))
            near = difflib.get_close_matches(name, columns_seen, n=1)
            hint = f"did you mean --map {field}={near[0]}? " if near else ""
            return UserError(
                f"{path}: no row has a column {name!r}, needed for field {field!r}; {hint}{listed([*there])}"
            )
        return UserError(f"{path}: no row has a field 'completion'; {_remedy(columns_seen)}; {listed([*there])}")

    return held_until(rows, complete, refusal)


def listed(names: Sequence[str]) -> str:
    """Return a list of the columns for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"the columns are {', '.join(names[:_LISTED])}{more}"


def _remedy(columns_seen: Row) -> str:
    """Say which columns are likely to hold completions, by their names."""
    ranks: dict[str, int] = {}
    for name, value in columns_seen.items():
        if not isinstance(value, str) or name.split(".")[0] in FIELDS:
            continue
        last = name.lower().split(".")[-1]
        if likely_words := [rank for rank, word in enumerate(_LIKELY) if word in last]:
            ranks[name] = likely_words[0]
        elif last in _INNER and "." in name:
            ranks[name] = len(_LIKELY)
    likely = sorted(ranks, key=lambda name: (ranks[name], len(name)))
    if not likely:
        return "name its column with --map completion=COLUMN"
    others = f" (or {', '.join(likely[1:4])})" if likely[1:] else ""
    return f"use --map completion={likely[0]}{others}"


def _nested(row: Row, before: str = "", depth: int = 6) -> Iterator[tuple[str, object]]:
    """Yield every column of a row and of its nested objects (of lists, the first entry), outer ones first."""
    held = {f"{before}{name}": value for name, value in row.items()}
    yield from held.items()
    for name, value in held.items():
        inner = {"0": value[0]} if isinstance(value, list) and value else value
        if depth and isinstance(inner, Mapping):
            yield from _nested(inner, f"{name}.", depth - 1)


def guess_columns(rows: Sequence[ForeignRow], given: ColumnMap) -> dict[str, str]:
    """Guess the columns of fields that no row and no map has.

    A column is guessed only if it alone has a usual name, or the field's own name in another case, and holds text in
    every row. `messages` hold both the prompt and the completion. Where no column can hold an id, it is ROW_NUMBER.
    """
    there = {name for row in rows for name in row.fields} | given.sources.keys()
    taken = {source.column for source in given.columns.values()}
    names = dict.fromkeys(name for row in rows for name in row.columns if name not in {*FIELDS, *taken})
    guessed: dict[str, str] = {}
    for wanted in FIELDS:
        if wanted in there or wanted in REFUSED or (wanted in ("text", "completion") and "messages" in there):
            continue
        usual = {wanted, *USUAL.get(wanted, "").split()}
        like = [name for name in names if name.strip().lower().replace(" ", "_").replace("-", "_") in usual]
        kinds = str if wanted in ("text", "completion") else (str, int)
        if len(like) == 1:
            values = [row.columns.get(like[0]) for row in rows]
            if all(value is None or isinstance(value, kinds) for value in values):
                guessed[wanted] = like[0]
    return guessed if "id" in there or "id" in guessed else guessed | {"id": ROW_NUMBER}


def guess_line(field: str, column: str) -> str:
    """Say what was guessed and how to say otherwise, for the scorecard."""
    if column == ROW_NUMBER:
        return "numbered, because no column is called 'id' (--map id=COLUMN names one)"
    return f"read from column {column!r} as {field!r}, by its name (--map {field}=COLUMN names another)"
