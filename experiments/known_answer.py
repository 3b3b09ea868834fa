"""Whether a completion states an answer that is known."""

from __future__ import annotations

import re


def states(completion: str, answer: str | None) -> bool:
    """Say whether a completion states the known answer as whole words, letter case and final points aside."""
    if answer is None:
        return False
    return re.search(rf"(?<!\w){re.escape(answer.lower().strip(' .'))}(?!\w)", completion.lower()) is not None
