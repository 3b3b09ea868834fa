"""The protocol of judges. Question: what did a completion do, given its prompt?

Reads completions; returns a judgement for each, and writes nothing but an endpoint's cache. `rules.py` is the default:
offline, deterministic, no model. `endpoint.py` asks any OpenAI-compatible endpoint with a rubric, and
`judging.classifier` a Hugging Face text classifier. A judge that cannot tell returns no action; it never guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import ConfigDict

from extract.record import Record
from scoring.actions import Action, Delivered

RefusedBy = Literal["filter", "field"]  # a provider's filter, or the refusal field of a reply


@dataclass(frozen=True)
class CompletionToJudge:
    """A completion and what it answers."""

    completion: str
    prompt: str | None = None  # the last user turn
    messages: tuple[Mapping[str, object], ...] = ()  # the whole conversation before the completion, where it is known
    answer: str | None = None  # the known answer


@dataclass(frozen=True)
class Judgement:
    """What a completion did. `action` is None where that could not be judged; `evidence` says by what, or why not."""

    action: Action | None
    evidence: str
    # Those of the five fields that the judge scored, 0 to 1, and `right` (1 or 0): whether it gives the known answer.
    fields: Mapping[str, float] = field(default_factory=dict)
    probability: float | None = None  # that the outcome is right, where the judge states it
    declined: float | None = None  # the probability that the request was declined, where the judge states it
    by: RefusedBy | None = None  # where a refusal is no sentence of the model: by what it is
    delivered: Delivered | None = None  # by a judge of delivery


class JudgeRecord(Record):
    """Which judge judged, and what it took: each judge adds keys of its own, and a file read back keeps them."""

    model_config = ConfigDict(extra="allow")

    judge: str = ""


class CompletionJudge(Protocol):
    """Anything that judges what completions did."""

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield a judgement for each completion, in order, reading ahead no further than it must."""
        ...

    def record(self) -> JudgeRecord: ...
