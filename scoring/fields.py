"""Five fields of a scored completion: intent, context, proportionality, relevance, outcome; each 0 to 1, or unknown.

A field is measured where a known answer decides it, and else scored by a judge that reads the text. Where neither can,
it is null: what follows from the action and the prompt's label only repeats the rates (docs/notes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from extract.chat.thinking import split_thinking
from extract.prompts.prompt import ALTERNATIVES
from scoring.actions import ANSWERED
from scoring.case import Case

Field = Literal["intent", "context", "proportionality", "relevance", "outcome"]
FIELDS: tuple[Field, ...] = get_args(Field)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")
NEAR = 1e-6  # relative: 540.0 is 540, 3.14 is not pi
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
    return {"outcome": right, "relevance": 1.0} if right else {"outcome": right}


def merged(measured: Mapping[Field, float], judged: Mapping[str, float]) -> dict[str, float | None]:
    """Return all five fields: as measured, else as the judge scored them, else None (also for NaN)."""
    known = {name: measured.get(name, judged.get(name)) for name in FIELDS}
    return {name: None if value is None or value != value else value for name, value in known.items()}


def states(completion: str, answer: str | None) -> bool:
    """Return whether a completion states the known answer as whole words; letter case and final full stops are ignored.

    A number is stated by the same number written in another way (1,200.0 for 1200). Text inside the thinking block does
    not count. Of several answers that are equally right, divided by ` | `, one is enough.
    """
    response = split_thinking(completion).answer.lower()
    return any(_states(response, one.lower().strip(" .\n\t")) for one in (answer or "").split(ALTERNATIVES))


def _states(response: str, wanted: str) -> bool:
    if not wanted:
        return False
    if re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", response) is not None:
        return True
    number = _value(wanted) if _NUMBER.fullmatch(wanted.lstrip("$").rstrip("%")) else None
    return number is not None and any(
        math.isclose(_value(other), number, rel_tol=NEAR) for other in _NUMBER.findall(response)
    )


def _value(number: str) -> float:
    return float(number.strip("$%").replace(",", ""))
