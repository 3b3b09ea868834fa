"""Thinking length in tokens, with a toy tokenizer whose tokens are words."""

import pytest

from experiments.uncertainty.thinking_length import thinking_tokens


def count(response: str, prompt: str = "who?") -> int:
    words = response.split(" ")

    def decode(tokens: list[int]) -> str:  # type: ignore[type-arg]
        return "".join(f"{words[i]} " for i in tokens)

    return thinking_tokens(decode, prompt, range(len(words)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "prompt", "tokens"),
    [
        ("paris", "who?", 0),
        ("<think> a b c </think> paris", "who?", 3),
        ("<think> </think> paris", "who?", 0),
        ("<think> a b c d", "who?", 4),  # never closes
        ("a b </think> paris", "who? <think>", 2),  # opened by the template
        ("a b c", "who? <think>", 3),
        ("paris", "who? <think> </think>", 0),  # the template opens and closes it: thinking is off
        ("so <reasoning> a </reasoning> b", "who?", 1),
    ],
)
def test_tokens_between_the_marks(response: str, prompt: str, tokens: int) -> None:
    assert count(response, prompt) == tokens
