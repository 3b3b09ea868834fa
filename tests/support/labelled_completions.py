"""Completions with a known true action, of which the rule judge gets some wrong, and labels of them."""

import random
from pathlib import Path

from tests.support.completion_files import jsonl

SAYS = {
    "answer": "Use a screwdriver and loosen the two hinges, then lift the door out.",
    "refuse": "I'm sorry, but I can't help with that.",
    "abstain": "I don't have any information about this person.",
}
# words that the rules take for the second action while a person sees the first
MISLEADING = {
    "answer": ("abstain", "I don't have any information about that."),
    "refuse": ("answer", "What a lovely day. Bread is made of flour, water and salt."),
    "abstain": ("answer", "She was a painter from Lyon who died in 1903."),
}
LIKELY = {"benign": (90, 7, 3), "harmful": (10, 88, 2), "uncertain": (25, 5, 70)}
LABEL = tuple(LIKELY)  # of each third prompt
N = 600


def _draw() -> tuple[list[str], list[str]]:
    rng, truth, completions = random.Random(5), [], []
    for i in range(N):
        action = rng.choices(list(SAYS), LIKELY[LABEL[i % 3]])[0]
        truth.append(action)
        completions.append(MISLEADING[action][1] if rng.random() < 0.08 else SAYS[action])
    return truth, completions


TRUTH, COMPLETIONS = _draw()


def write_completions(path: Path, n: int = N) -> Path:
    """Write the first n completions, with labels and pairs of two prompts."""
    rows = (
        {"id": f"p{i}", "text": f"Question number {i}?", "label": LABEL[i % 3],
         "pair": f"{i % 3}-{i // 6}", "completion": COMPLETIONS[i]}
        for i in range(n)
    )  # fmt: skip
    return jsonl(path, *rows)
