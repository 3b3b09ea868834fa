"""What a judge is: it reads what was said to a prompt, and says what that did.

Judges stand behind one protocol: `rules.py` (the default: offline, deterministic, no model), `classifier.py` (a Hugging
Face text classifier), `endpoint.py` (any OpenAI-compatible endpoint with a rubric). A judge that cannot tell says so
(`action` None); it never guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from scoring.actions import Action


@dataclass(frozen=True)
class CompletionToJudge:
    """A completion and what it answers."""

    completion: str
    prompt: str | None = None  # the last user turn
    messages: tuple[Mapping[str, object], ...] = ()  # the whole conversation before the completion, where it is known


@dataclass(frozen=True)
class Judgement:
    """What a completion did. `action` is None where that could not be judged; `evidence` says by what, or why not."""

    action: Action | None
    evidence: str
    fields: Mapping[str, float] = field(default_factory=dict)  # those of the five fields that the judge scored, 0 to 1


class Judge(Protocol):
    """Anything that says what completions did."""

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield a judgement for each completion, in order, reading ahead no further than it must."""
        ...

    def record(self) -> dict[str, object]:
        """Say which judge this is and, after judging, what it took: calls, failures, cost where there are such."""
        ...
