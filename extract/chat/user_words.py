"""Locates the user's words in a rendered conversation, also if the template changes or repeats them.

A placeholder is rendered in place of the words; the text before and after it then bounds the words, kept or altered.
So no template is treated by name, and words that also occur in the template or in an earlier turn are not confused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

from extract.errors import UserError

Show = Callable[[str], str]
Span = tuple[int, int]
PRIVATE_USE = range(0xE000, 0xF900)  # single characters, which filters of case, order and length do not change
LETTERS = ("Zqxjvk", "Vkwqzj")  # for templates that escape or drop what is not ASCII


def find_words(show: Show, words: str, text: str) -> Span:
    """Return start and end of the user's words in `text`; of the last copy, if the template repeats them.

    Args:
        show: renders the conversation with other words in place of the user's last message.
        words: the user's last message.
        text: `show(words)`.

    Raises:
        UserError: the template drops the words, or the text around them depends on them, so that their bounds are
            unknown.
    """
    around, left, right = _pass_through(show, words + text)
    bounds = _bounded(around, text)
    if bounds and text[slice(*bounds)].strip() == words.strip():
        return bounds
    marked = re.split(f"({left}|{right})", show(left + words + right))
    kept = marked[1::2] == [left, right]
    found = _last_copy(around, words, text) or (_between_marks(marked, text) if kept else None)
    found = found or _only_copy(around, words, text, bounds) or (None if kept else bounds)
    if found is None:
        raise UserError(
            "the chat template writes text around the user's words that depends on them, so their position "
            "cannot be found; use another template (model.template)"
        )
    return found


def _pass_through(show: Show, used: str) -> tuple[list[str], str, str]:
    """Return the text before, between and after the copies of a placeholder, and two marks that are rendered alike."""
    unused = tuple(islice((chr(code) for code in PRIVATE_USE if chr(code) not in used), 2))
    for left, right in (unused, LETTERS) if len(unused) == 2 else (LETTERS,):
        around = re.split(left, show(left), flags=re.IGNORECASE)
        if len(around) > 1:
            return around, left, right
    raise UserError("the chat template drops the user's words; use another template (model.template)")


def _bounded(around: Sequence[str], text: str) -> Span | None:
    """Return the last of equal copies inside the text around a placeholder."""
    length = (len(text) - sum(map(len, around))) // (len(around) - 1)
    start = len(text) - len(around[-1]) - length
    return (start, start + length) if text[start : start + length].join(around) == text else None


def _last_copy(around: Sequence[str], words: str, text: str) -> Span | None:
    """Return the last of several copies, if only the earlier ones were altered (for example a title)."""
    for kept in (words, words.strip()):
        if len(around) > 2 and text.endswith(around[-2] + kept + around[-1]):
            end = len(text) - len(around[-1])
            return end - len(kept), end
    return None


def _only_copy(around: Sequence[str], words: str, text: str, bounds: Span | None) -> Span | None:
    """Return the only place of the words, ignoring letter case, if the template wrote extra text because of them."""
    start, end = bounds or (0, len(text))
    for kept in (words, words.strip()):
        pattern = re.compile(f"(?={re.escape(kept)})", re.IGNORECASE)
        found = [start + place.start() for place in pattern.finditer(text[start:end])]
        if len(found) == 1 and (bounds or not any(map(pattern.search, around))):
            return found[0], found[0] + len(kept)
    return None


def _between_marks(marked: Sequence[str], text: str) -> Span | None:
    """Return the bounds of words rendered between two marks, if the words equal those rendered without marks."""
    before, _, inside, _, after = marked
    span = _bounded((before, after), text)
    return span if span and _letters(text[slice(*span)]) == _letters(inside) else None


def _letters(text: str) -> str:
    """Remove what a mark may change next to it: blanks and letter case."""
    return "".join(text.split()).casefold()
