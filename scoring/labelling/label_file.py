"""labels.jsonl while people label: each label is on disk before the next completion is shown, and can be undone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from extract.atomic_write import unwritable, write_jsonl
from extract.errors import UserError
from scoring.labels.label import Key, Label, read_labels


class LabelFile:
    """Appends labels to a file that may hold labels of other annotators.

    Raises:
        UserError: the file cannot be read or written, or holds something else than labels.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_cut_line(path)
        self._labels = {(label.annotator, label.key): label for label in read_labels(path)} if path.is_file() else {}
        self._ends: list[int] = []  # size of the file before and after each label of this session

    def of(self, annotator: str) -> dict[Key, Label]:
        """Return the labels of one annotator by completion."""
        return {key: label for (name, key), label in self._labels.items() if name == annotator}

    def annotators(self) -> list[str]:
        return sorted({name for name, _ in self._labels})

    def add(self, label: Label) -> None:
        """Write a label to disk."""
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
        """Remove the last label of this session from the file and return it; None if there is none.

        Raises:
            UserError: another process has written to the file since.
        """
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
        """Write the file again with the inclusion probabilities of a larger draw.

        Raises:
            UserError: a labelled completion is not in the draw.
        """
        strange = next((key for _, key in self._labels if key not in inclusion), None)
        if strange is not None:
            raise UserError(
                f"{self.path} has a label of id {strange[0]!r}, which is not in the draw; choose another "
                "file with --out"
            )
        self._labels = {
            name: label.model_copy(update={"inclusion": inclusion[label.key]}) for name, label in self._labels.items()
        }
        if self._labels:
            write_jsonl(self.path, [label.to_dict() for label in self._labels.values()])


def _drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off: it has no newline, and the label was never confirmed."""
    if not path.is_file():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    try:
        if content[whole:]:
            json.loads(content[whole:])
    except ValueError:
        os.truncate(path, whole)
        return
    if content[whole:]:
        with path.open("ab") as file:
            file.write(b"\n")
