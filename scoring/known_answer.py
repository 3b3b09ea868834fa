"""Checks whether a completion states the known answer."""

from __future__ import annotations

import re

from extract.chat.thinking import split_thinking


def states(completion: str, answer: str | None) -> bool:
    """Return whether a completion states the known answer as whole words; letter case and final full stops are ignored.

    Text inside the thinking block does not count.
    """
    wanted = (answer or "").lower().strip(" .\n\t")
    response = split_thinking(completion).answer.lower()
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", response) is not None
