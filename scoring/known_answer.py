"""Checks whether a completion states the known answer."""

from __future__ import annotations

import math
import re

from extract.chat.thinking import split_thinking
from extract.prompts.prompt import ALTERNATIVES

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")
NEAR = 1e-6  # relative: 540.0 is 540, 3.14 is not pi


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
        math.isclose(_value(found), number, rel_tol=NEAR) for found in _NUMBER.findall(response)
    )


def _value(number: str) -> float:
    return float(number.strip("$%").replace(",", ""))
