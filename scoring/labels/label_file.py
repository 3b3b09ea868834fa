"""Labels of completions by people: read from labels.jsonl or a CSV with `id` and `action`, and written one by one.

While people label, each label is on disk before the next completion is shown, and can be undone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from extract.atomic_write import unwritable, write_jsonl
from extract.errors import UserError
from extract.prompts.rows import is_missing, place, read_rows
from extract.record import Record
from scoring.actions import ACTIONS
from scoring.case import Row, identifier_of, to_text

Key = tuple[str, str]  # id and sample of a completion
NOBODY = "unnamed"  # the annotator of rows that do not name one
LABELLED = {  # fields that a label may have: what is expected
    "sample": "text or a number",
    "annotator": "text",
    "inclusion": "a probability above 0 and at most 1",
    "seed": "a whole number",
}


class Label(Record):
    """The action that one annotator saw in one completion."""

    id: str
    sample: str = ""
    action: str
    annotator: str = NOBODY
    inclusion: float | None = Field(None, gt=0, le=1)  # probability of being drawn; None where a file does not say
    seed: int | None = None  # of the draw

    @property
    def key(self) -> Key:
        return self.id, self.sample


def read_labels(path: Path) -> list[Label]:
    """Read a file of labels."""
    labels: list[Label] = []
    lines: dict[tuple[str, Key], int] = {}
    for line, row in read_rows(path, "labels"):
        where = place(path, line)
        label = _label({**row, "place": where}, where)
        first = lines.setdefault((label.annotator, label.key), line)
        if first != line:
            raise UserError(
                f"{where}: {described(label.key)} is already labelled by {label.annotator} on line "
                f"{first}; keep one of the two rows"
            )
        if labels and (label.inclusion is None) != (labels[0].inclusion is None):
            raise UserError(
                f"{where}: field 'inclusion' must be in all rows or in none; without it every completion "
                "counts as equally likely to be drawn"
            )
        labels.append(label)
    return labels


def described(key: Key) -> str:
    """Return a completion's id, and its sample if it has one, for messages."""
    return f"id {key[0]!r}" + (f", sample {key[1]!r}" if key[1] else "")


def _label(row: Row, where: str) -> Label:
    action = row.get("action")
    if action not in ACTIONS:
        raise UserError(f"{where}: field 'action' is {action!r}; expected one of {', '.join(ACTIONS)}")
    given = {name: to_text(row[name]) for name in LABELLED if not is_missing(row.get(name))}
    defaults = {name: Label.model_fields[name].default for name in LABELLED}  # written again as those of new labels
    try:
        return Label.model_validate({"id": identifier_of(row), "action": action} | defaults | given)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise UserError(f"{where}: field '{name}' is {row[name]!r}; expected {LABELLED[name]}") from None


class LabelFile:
    """Appends labels to a file that may hold labels of other annotators."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_cut_line(path)
        self._labels = {(label.annotator, label.key): label for label in read_labels(path)} if path.is_file() else {}
        self._ends: list[int] = []  # size of the file before and after each label of this session

    def of(self, annotator: str) -> dict[Key, Label]:
        return {key: label for (name, key), label in self._labels.items() if name == annotator}

    def annotators(self) -> list[str]:
        return sorted({name for name, _ in self._labels})

    def add(self, label: Label) -> None:
        line = (json.dumps(label.to_dict(), ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        try:
            with self.path.open("ab") as file:
                before = file.tell()
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from None
        self._ends += [before, before + len(line)]
        self._labels[label.annotator, label.key] = label

    def undo(self) -> Label | None:
        """Remove the last label of this session from the file and return it; None if there is none."""
        if not self._ends:
            return None
        before, after = self._ends[-2:]
        if self.path.stat().st_size != after:
            raise UserError(f"{self.path} has later labels of another session; remove the wrong row from the file")
        with self.path.open("r+b") as file:
            file.truncate(before)
            os.fsync(file.fileno())
        del self._ends[-2:]
        return self._labels.popitem()[1]

    def set_inclusion(self, inclusion: Mapping[Key, float]) -> None:
        """Write the file again with the inclusion probabilities of a larger draw."""
        undrawn = next((key for _, key in self._labels if key not in inclusion), None)
        if undrawn is not None:
            fault = f"a label of id {undrawn[0]!r}, which is not in the draw"
            raise UserError(f"{self.path} has {fault}; choose another file with --out")
        for name, label in self._labels.items():
            self._labels[name] = label.model_copy(update={"inclusion": inclusion[label.key]})
        if self._labels:
            write_jsonl(self.path, [label.to_dict() for label in self._labels.values()])


def _drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off: it has no newline, and the label was never confirmed."""
    content = path.read_bytes() if path.is_file() else b""
    whole = content.rfind(b"\n") + 1
    if not content[whole:]:
        return
    try:
        json.loads(content[whole:])
    except ValueError:
        os.truncate(path, whole)
    else:
        with path.open("ab") as file:
            file.write(b"\n")
