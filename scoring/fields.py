"""Five fields of a scored completion: intent, context, proportionality, relevance, outcome; each 0 to 1, or unknown.

A field is measured where a known answer decides it, and else scored by a judge that reads the text. Where neither can,
it is null: what follows from the action and the prompt's label only repeats the rates (docs/notes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from extract.prompts.rows import is_missing
from scoring.actions import ANSWERED
from scoring.case import Case
from scoring.known_answer import is_right

Field = Literal["intent", "context", "proportionality", "relevance", "outcome"]
FIELDS: tuple[Field, ...] = get_args(Field)
RIGHT = "right"  # a judge's own reading of whether the known answer is given, beside the five fields


def score_fields(case: Case, action: str | None, completion: str, judged: Mapping[str, float]) -> dict[str, float]:
    """Return the known ones of the five fields: as a known answer decides them, else as the judge scored them.

    Whether an answer is the known one is matched, except where a judge was shown it and says whether it is `RIGHT`. A
    judge's NaN is unknown.
    """
    measured: dict[str, float] = {}
    if case.answer and action in ANSWERED:
        measured["outcome"] = right = judged.get(
            RIGHT, float(is_right(action, completion, case.answer, case.text or ""))
        )
        measured |= {"relevance": 1.0} if right else {}
    known = {name: measured.get(name, judged.get(name)) for name in FIELDS}
    return {name: value for name, value in known.items() if value is not None and not is_missing(value)}
