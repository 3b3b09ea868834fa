"""Five fields of a scored completion: intent, context, proportionality, relevance, outcome; each 0 to 1, or unknown.

A field is measured where a known answer decides it, and else scored by a judge that reads the text. Where neither can,
it is null: what follows from the action and the prompt's label only repeats the rates (docs/notes).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from scoring.actions import ANSWERED
from scoring.case import Case
from scoring.known_answer import states

Field = Literal["intent", "context", "proportionality", "relevance", "outcome"]
FIELDS: tuple[Field, ...] = get_args(Field)
RIGHT = "right"  # a judge's own reading of whether the known answer is given, beside the five fields


def measure(
    case: Case, action: str | None, completion: str, judged: Mapping[str, float] = MappingProxyType({})
) -> dict[Field, float]:
    """Return the fields that a known answer decides; none where the prompt has no known answer or is not answered.

    The known answer is looked for among the words, except where a judge was shown it and says whether it is `RIGHT`.
    """
    if not case.answer or action not in ANSWERED:
        return {}
    right = judged.get(RIGHT, float(states(completion, case.answer)))
    found: dict[Field, float] = {"outcome": right}
    return found | {"relevance": 1.0} if found["outcome"] else found


def merged(measured: Mapping[Field, float], judged: Mapping[str, float]) -> dict[str, float | None]:
    """Return all five fields: as measured, else as the judge scored them, else None (also for NaN)."""
    found = {name: measured.get(name, judged.get(name)) for name in FIELDS}
    return {name: None if value is None or value != value else value for name, value in found.items()}
