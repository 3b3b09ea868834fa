"""Five fields of a scored completion: intent, context, proportionality, relevance, outcome; each 0 to 1, or unknown.

A field is measured where a known answer decides it, and else scored by a judge that reads the text. Where neither can,
it is null: what follows from the action and the prompt's label only repeats the rates (docs/notes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal, get_args

from extract.chat.thinking import split_thinking
from extract.prompts.prompt import ALTERNATIVES
from extract.prompts.rows import is_missing
from scoring.actions import ANSWERED
from scoring.case import Case

Field = Literal["intent", "context", "proportionality", "relevance", "outcome"]
FIELDS: tuple[Field, ...] = get_args(Field)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")
NEAR = 1e-6  # relative: 540.0 is 540, 3.14 is not pi
RIGHT = "right"  # a judge's own reading of whether the known answer is given, beside the five fields


def score_fields(case: Case, action: str | None, completion: str, judged: Mapping[str, float]) -> dict[str, float]:
    """Return the known ones of the five fields: as a known answer decides them, else as the judge scored them.

    In an answer, the known answer is looked for among the words, except where a judge was shown it and says whether it
    is `RIGHT`. A judge's NaN is unknown.
    """
    measured: dict[str, float] = {}
    if case.answer and action in ANSWERED:
        measured["outcome"] = right = judged.get(RIGHT, float(states(completion, case.answer)))
        measured |= {"relevance": 1.0} if right else {}
    known = {name: measured.get(name, judged.get(name)) for name in FIELDS}
    return {name: value for name, value in known.items() if value is not None and not is_missing(value)}


def states(completion: str, answer: str | None) -> bool:
    """Return whether a completion states the known answer as whole words; letter case and final full stops are ignored.

    A number is stated by the same number written in another way (1,200.0 for 1200). Text inside the thinking block does
    not count. Of several answers that are equally right, divided by ` | `, one is enough.
    """
    response = split_thinking(completion).answer.lower()
    return any(_states(response, one.lower().strip(" .\n\t")) for one in (answer or "").split(ALTERNATIVES))


def _states(response: str, wanted: str) -> bool:
    if not wanted or re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", response) is not None:
        return bool(wanted)
    if not _NUMBER.fullmatch(wanted.lstrip("$").rstrip("%")):
        return False
    return any(math.isclose(_value(other), _value(wanted), rel_tol=NEAR) for other in _NUMBER.findall(response))


def _value(number: str) -> float:
    return float(number.strip("$%").replace(",", ""))
