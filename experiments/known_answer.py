"""Whether a completion states an answer that is known."""

from __future__ import annotations

import re


def states(completion: str, answer: str | None) -> bool:
    """Say whether a completion states the known answer as whole words, letter case and final points aside."""
    wanted = (answer or "").lower().strip(" .\n\t")
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", completion.lower()) is not None
