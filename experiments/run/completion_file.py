"""Reads and writes completions.jsonl: each prompt's completion with its judged action."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from extract.atomic_write import write_jsonl
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from scoring.known_answer import is_right as gives_known_answer


@dataclass(frozen=True)
class Completion:
    """One judged completion; `action` is None if it is unjudged."""

    id: str
    text: str
    completion: str  # including a preceding thought between its marks
    action: str | None
    evidence: str
    token_ids: tuple[int, ...]
    thought: int = 0  # of its tokens, those before the answer, where it thinks first
    settled: bool = False  # it ended early, since its action was settled (generate.settled_within)


def write_completions(completions: Sequence[Completion], path: Path) -> None:
    """Write JSONL atomically."""
    write_jsonl(path, map(asdict, completions))


def read_completions(path: Path) -> list[Completion]:
    """Read completions written by `write_completions`; UserError: the file is missing or damaged."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [Completion(**row | {"token_ids": tuple(row["token_ids"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None


def saved_tokens(completions: Sequence[Completion], most: int) -> list[int]:
    """Return how many tokens each completion that ended early is shorter, at most."""
    return [most - len(one.token_ids) for one in completions if one.settled]


def is_right(completion: Completion, prompt: Prompt) -> bool:
    """Return whether a completion answers with the prompt's known answer."""
    return gives_known_answer(completion.action, completion.completion, prompt.answer, prompt.text)
