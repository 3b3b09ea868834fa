"""Splits a completion into its thought and its answer, at the marks around the thought.

Completions are kept whole, thought included. Some templates write the opening mark themselves, so that the completion
begins amid the thought: `reopened` puts the mark back, and every reader of the text can tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPENING = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning)>|<\|channel\|>final<\|message\|>", re.IGNORECASE)
_OPENED = re.compile(rf"({OPENING.pattern})\s*\Z", re.IGNORECASE)
_BEGINS = 200  # characters in which a thought must open; further on, an answer may be about such marks


@dataclass(frozen=True)
class SplitCompletion:
    """The thought and the answer of a completion."""

    thought: str  # without the marks
    answer: str
    closed: bool = True  # False: cut off amid the thought, so that nothing was said


def split_thinking(completion: str) -> SplitCompletion:
    """Part a completion into its thought and what was said after it; one without a thought was all said."""
    ends = list(CLOSING.finditer(completion))
    if ends:
        return SplitCompletion(_bare(completion[: ends[-1].start()]), completion[ends[-1].end() :])
    if OPENING.search(completion[:_BEGINS]):
        return SplitCompletion(_bare(completion), "", closed=False)
    return SplitCompletion("", completion)


def thinks(completion: str) -> bool:
    """Say whether a completion holds a thought; an empty block, as where thinking is turned off, is none."""
    parted = split_thinking(completion)
    return not parted.closed or bool(parted.thought)


def reopened(prompt: str, completion: str) -> str:
    """Return the completion with the mark before it that opens its thought, if the rendered prompt ends with one."""
    opened = _OPENED.search(prompt)
    return f"{opened[1]}\n{completion}" if opened else completion


def is_mark(token: str) -> bool:
    """Say whether a token opens or closes a thought."""
    return bool(OPENING.fullmatch(token) or CLOSING.fullmatch(token))


def _bare(text: str) -> str:
    return CLOSING.sub(" ", OPENING.sub(" ", text)).strip()
