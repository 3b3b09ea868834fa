"""Labels of completions by people: the rows of labels.jsonl, or of a CSV with `id` and `action`."""

from __future__ import annotations

from pathlib import Path

from extract.errors import UserError
from extract.prompts.rows import place, read_rows
from extract.record import Record
from scoring.actions import ACTIONS
from scoring.case import Row, identifier_of, is_missing, sample_of, to_text

Key = tuple[str, str]  # id and sample of a completion
NOBODY = "unnamed"  # the annotator of rows that do not name one


class Label(Record):
    """The action that one annotator saw in one completion."""

    id: str
    sample: str = ""
    action: str
    annotator: str = NOBODY
    inclusion: float | None = None  # probability that the draw contains this row; None where a file does not say
    seed: int | None = None  # of the draw

    @property
    def key(self) -> Key:
        """The completion that this labels."""
        return self.id, self.sample


def read_labels(path: Path) -> list[Label]:
    """Read a file of labels.

    Raises:
        UserError: a row has no id or an unknown action, labels a completion twice, or has no valid inclusion
            probability where other rows have one; names the line.
    """
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
    annotator = row.get("annotator")
    return Label(
        id=identifier_of(row),
        sample=sample_of(row),
        action=str(action),
        annotator=NOBODY if is_missing(annotator) else to_text(annotator),
        inclusion=_inclusion(row, where),
        seed=_seed(row, where),
    )


def _seed(row: Row, where: str) -> int | None:
    value = row.get("seed")
    if is_missing(value):
        return None
    try:
        return int(to_text(value))
    except ValueError:
        raise UserError(f"{where}: field 'seed' is {value!r}; expected a whole number") from None


def _inclusion(row: Row, where: str) -> float | None:
    value = row.get("inclusion")
    if is_missing(value):
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = float("nan")
    if not 0 < number <= 1:
        raise UserError(f"{where}: field 'inclusion' is {value!r}; expected a probability above 0 and at most 1")
    return number
