"""Whether a completion states an answer that is known."""

from __future__ import annotations

import re

from extract.chat.thinking import split_thinking


def states(completion: str, answer: str | None) -> bool:
    """Say whether a completion states the known answer as whole words, letter case and final points aside.

    What it only thinks is not stated.
    """
    wanted = (answer or "").lower().strip(" .\n\t")
    said = split_thinking(completion).answer.lower()
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", said) is not None
