"""Thinking length: the number of thinking tokens before an answer, an outcome where a premise is missing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from extract.chat.thinking import CLOSING, OPENING


def thinking_tokens(decode: Callable[[Sequence[int]], str], prompt: str, response: Sequence[int]) -> int:
    """Count the tokens between <think> and </think>, without the marks; 0 where there is no thinking.

    A block opened by the template (the prompt ends within it) counts from the first token of the response; a block that
    is not closed counts to its last token.

    Args:
        decode: tokens to text, special tokens included.
        prompt: as the model read it.
    """
    text = decode(response)
    opened, closed = OPENING.search(text), CLOSING.search(text)
    within = len(OPENING.findall(prompt)) > len(CLOSING.findall(prompt))
    if opened is None and not within:
        return 0
    start = 0 if within or opened is None else _first(decode, response, opened.end())
    end = len(response) if closed is None else _first(decode, response, closed.start() + 1) - 1
    return max(0, end - start)


def _first(decode: Callable[[Sequence[int]], str], response: Sequence[int], n_characters: int) -> int:
    """Return the number of tokens after which the text has at least n characters."""
    return bisect_left(range(len(response)), n_characters, key=lambda n: len(decode(response[:n])))
