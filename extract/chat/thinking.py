"""Splits a completion into its thought and its answer, at the marks around the thought.

Some templates write the opening mark in the prompt; `reopened` puts it back, so that the text alone shows the thought.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

_NAME = r"(?:seed:|ant_?|\w{1,9}_)?(?:think(?:ing)?|thoughts?|reasoning|scratchpad|analysis|reflection)"
_NO_QUOTATION = "(?!" + "|".join(rf"(?<=[\s(]{mark})</?{_NAME}>{mark}" for mark in "`\"'") + ")"  # spoken of
OPENING = re.compile(
    rf"{_NO_QUOTATION}<{_NAME}>|\[think(?:ing)?\]|◁think▷|<\|(?:START_THINKING|begin_of_thought|inner_prefix)\|>|"
    r"<\|channel\|>(?:analysis|commentary)\b(?:<\|message\|>)?|<\|channel>(?:thought\b)?|"
    r"<unused94>(?:thought\b)?|^here(?: is|'s) my thought process:|^#{1,3} thinking\b|"
    r"^analysis(?=[a-z\"'\n])|^thinking\.\.\.\s",  # Harmony decoded without special tokens; ollama's
    re.IGNORECASE,
)
CLOSING = re.compile(
    rf"{_NO_QUOTATION}</{_NAME}>|\[/think(?:ing)?\]|◁/think▷|<\|(?:END_THINKING|end_of_thought|inner_suffix)\|>|"
    r"<\|channel\|>final\b(?: ?<\|constrain\|>\w+)?<\|message\|>|<channel\|>|"
    r"<unused95>|here(?: is|'s) my response:|#{1,3} final response\b|assistant\n*final|\.\.\.done thinking\.",
    re.IGNORECASE,
)
UNCLOSED = re.compile(rf"(?:^|\n)\s*(?:{OPENING.pattern})", re.IGNORECASE)  # where no mark closes it
_OPENED = re.compile(rf"({OPENING.pattern})\s*\Z", re.IGNORECASE)
_SIGNS = ("<", "[", "◁", "final", "done thinking", "my response")  # one of them is in every closing mark
OPENS_WITHIN = 200  # characters in which a thought must open; later marks may be part of an answer
_SERVED = re.compile(r"[<\[◁]|analysis(?=\S)")  # marks that no ordinary answer opens with, as words may
_LONGEST = 64  # characters of a mark, at most
_REST = len("<|message|>")  # of an opening mark, after what is one without it


@dataclass(frozen=True)
class SplitCompletion:
    """The thought and the answer of a completion."""

    thought: str  # without the marks
    answer: str
    closed: bool = True  # False: truncated inside the thought, so there is no answer


def split_thinking(completion: str) -> SplitCompletion:
    """Split a completion into its thought and the answer after it; without a thought, all of it is the answer."""
    lowered = completion.lower()
    ends = list(CLOSING.finditer(completion)) if any(sign in lowered for sign in _SIGNS) else []
    if ends:
        return SplitCompletion(_bare(completion[: ends[-1].start()]), completion[ends[-1].end() :])
    if UNCLOSED.search(completion[:OPENS_WITHIN]):
        return SplitCompletion(_bare(completion), "", closed=False)
    return SplitCompletion("", completion)


class StreamedSplit:
    """Splits a completion into thought and answer while it is written; text that may become a mark is held back.

    Stricter than `split_thinking`, as what was given cannot be taken back: a thought begins the completion, and ends at
    the first closing mark that begins as its opening mark does (`<`, `[`, …).
    """

    def __init__(self) -> None:
        self._part: Literal["opening", "thought", "answer"] = "opening"
        self._text, self._given = "", 0  # the whole text, and how many characters of it are given or are marks
        self._closing = ""  # how the closing mark begins
        self._after_mark = False

    def push(self, piece: str, *, last: bool = False) -> tuple[str, str]:
        """Add a piece; return what is new of the thought and of the answer, without the blanks at the marks."""
        self._text += piece
        thought, end = "", len(self._text)
        if self._part == "opening":
            at = end - len(self._text.lstrip())
            mark = OPENING.match(self._text, at)
            if mark and _SERVED.match(self._text, at) and (last or mark.end() + _REST < end):
                self._closing = mark[0][0]
                self._part, self._given, self._after_mark = "thought", mark.end(), True
            elif last or not self._may_open():
                self._part = "answer"
        if self._part == "thought":
            marks = CLOSING.finditer(self._text, self._given)
            mark = next((one for one in marks if one[0].startswith(self._closing) and (last or one.end() < end)), None)
            held = end if last else self._text.find(self._closing, max(self._given, end - _LONGEST))
            thought = self._give(mark.start() if mark else held if held >= 0 else end)
            if mark:
                self._part, self._given, self._after_mark = "answer", mark.end(), True
        return thought, self._give(end) if self._part == "answer" else ""

    def _may_open(self) -> bool:
        text = self._text.lstrip()
        return len(self._text) < _LONGEST and bool(_SERVED.match(text) or "analysis".startswith(text))

    def _give(self, end: int) -> str:
        new = self._text[self._given : end]
        if self._part == "thought":
            new = new.rstrip()
        self._given += len(new)
        if self._after_mark:
            new = new.lstrip()
            self._after_mark = not new
        return new


def thinks(completion: str) -> bool:
    """Return whether a completion contains a thought; an empty block (thinking turned off) does not count."""
    parts = split_thinking(completion)
    return not parts.closed or bool(parts.thought)


def reopened(prompt: str, completion: str) -> str:
    """Return the completion after the opening mark of its thought, if the rendered prompt ends with that mark."""
    opened = _OPENED.search(prompt)
    return f"{opened[1]}\n{completion}" if opened else completion


def after_opening(prompt: str, completion: str) -> str:
    """Return the completion without the mark that `reopened` put before it: what follows the rendered prompt."""
    opened = _OPENED.search(prompt)
    return completion.removeprefix(opened[1]).removeprefix("\n") if opened else completion


def is_mark(token: str) -> bool:
    """Return whether a token opens or closes a thought."""
    return bool(OPENING.fullmatch(token) or CLOSING.fullmatch(token))


def thought_tokens(pieces: Sequence[str], opened: bool) -> range:
    """Return which tokens of a response are its thought, without marks and blanks around it; empty if it is not closed.

    `pieces` are the texts of the tokens; a mark may take several. `opened`: the prompt ends with the opening mark.
    """
    text, ends = "".join(pieces), list(accumulate(map(len, pieces)))
    opening, closing = OPENING.search(text[:OPENS_WITHIN]), list(CLOSING.finditer(text))
    if not closing or not (opened or opening):
        return range(0)
    start, end = opening.end() if opening else 0, closing[-1].start()
    inside = [i for i, piece in enumerate(pieces) if start <= ends[i] - len(piece) and ends[i] <= end and piece.strip()]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def answer_start(pieces: Sequence[str], opened: bool) -> int:
    """Return the number of a response's tokens before its answer; 0 where it does not think, or only thinks.

    As for `thought_tokens`; blanks after the closing mark count as thought.
    """
    text, ends = "".join(pieces), list(accumulate(map(len, pieces)))
    closing = list(CLOSING.finditer(text))
    if not closing or not (opened or OPENING.search(text[:OPENS_WITHIN])):
        return 0
    after = closing[-1].end()
    return next((i for i, end in enumerate(ends) if end - len(pieces[i]) >= after and pieces[i].strip()), 0)


def _bare(text: str) -> str:
    return CLOSING.sub(" ", OPENING.sub(" ", text)).strip()
