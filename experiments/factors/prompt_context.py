"""Context of a request: asker, system line and earlier turns, and the request without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Literal

import numpy as np
from jaxtyping import Shaped

from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt

NO_VALUE = ""


def system_line(prompt: Prompt) -> str | None:
    """Return the text of the system messages."""
    return " ".join(m["content"] for m in prompt.messages if m["role"] == "system") or None


def earlier_turns(prompt: Prompt) -> str | None:
    """Return a fixed value if the conversation has turns before the last one."""
    return "an earlier turn" if any(m["role"] != "system" for m in prompt.messages[:-1]) else None


FACTORS: dict[str, Callable[[Prompt], str | None]] = {
    "asker": attrgetter("persona"),
    "system": system_line,
    "earlier_turns": earlier_turns,
}
ABSENT = {
    "asker": "no request names who asks",
    "system": "no request has a system line",
    "earlier_turns": "no request has earlier turns",
}


def without_system_line(prompt: Prompt) -> Prompt:
    """Return the prompt without its system messages."""
    return replace(prompt, messages=tuple(m for m in prompt.messages if m["role"] != "system"))


def last_turn(prompt: Prompt) -> Prompt:
    """Return the prompt without the turns before its last one; a system line is kept."""
    system = tuple(m for m in prompt.messages[:-1] if m["role"] == "system")
    return replace(prompt, messages=(*system, prompt.messages[-1]))


REMOVALS: dict[str, Callable[[Prompt], Prompt]] = {"system": without_system_line, "earlier_turns": last_turn}


def values_of(corpus: Corpus, read: Callable[[Prompt], str | None]) -> Shaped[np.ndarray, " n_prompts"]:
    """Return each prompt's value of a factor, of shape (n_prompts,); NO_VALUE where it has none."""
    return np.array([read(prompt) or NO_VALUE for prompt in corpus.prompts])


def ambiguous_texts(corpus: Corpus) -> dict[Literal["distinct", "both"], int]:
    """Count the distinct last turns after earlier ones, and those that occur in both harmful and benign requests."""
    labels: dict[str, set[str]] = defaultdict(set)
    for row in np.flatnonzero(corpus.requests | corpus.harmful):
        if earlier_turns(prompt := corpus.prompts[row]):
            labels[prompt.text].add(prompt.label)
    return {"distinct": len(labels), "both": sum(len(seen) == 2 for seen in labels.values())}
