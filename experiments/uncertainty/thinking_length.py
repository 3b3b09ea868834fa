"""How long a model thinks before it answers, in tokens: an outcome of its own where a premise is missing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from extract.chat.thinking import CLOSING, OPENING


def thinking_tokens(decode: Callable[[Sequence[int]], str], prompt: str, response: Sequence[int]) -> int:
    """Count the tokens between <think> and </think>, the marks' own left out; 0 where there is no thinking.

    A block that the template opens (the prompt ends within it) counts from the response's first token, and one that
    never closes to its last.

    Args:
        decode: tokens to text, special tokens written out.
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
    """Return how many tokens it takes until the text has so many characters."""
    return bisect_left(range(len(response)), n_characters, key=lambda n: len(decode(response[:n])))
