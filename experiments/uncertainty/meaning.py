"""Which of several answers to one question mean the same: by normalised wording, or by an NLI model (entailment.py).

Refusals mean the same whatever their words, and so do abstentions, as the rule judge reads them. The known answer is
never looked at: agreement with it would make right answers look surer than wrong ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.uncertainty.results import MeaningsUsed
from scoring.judges.spoken import spoken

_ASIDE = re.compile(
    r"(?:(?:well|sure|yes|yeah|okay|ok|so|hm+|certainly|of course|probably|perhaps|possibly|maybe|"
    r"i (?:think|believe|guess|would say)(?: that)?|as far as i know|to the best of my knowledge|"
    r"if i (?:recall|remember)(?: correctly)?|"
    r"(?:the|my) (?:correct |final |short |best )?(?:answer|guess)(?: is| would be)?|"
    r"it is|it's|that is|that's|this is)[,.:!]? +)+"
)
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[,](?=\d{3}\b)")
_PUNCTUATION = re.compile(r"(?!(?<!\w)-\d)(?:(?<!\d)[^\w\s]|[^\w\s](?!\d))|_")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True)
class Answers:
    """The answers to one question, and what each did (None where unjudged)."""

    question: str
    texts: tuple[str, ...]
    actions: tuple[str | None, ...]


class MeaningClusterer(Protocol):
    """Anything that tells which answers mean the same."""

    def clusters(self, asked: Sequence[Answers]) -> list[tuple[int, ...]]:
        """Number the meanings of each question's answers, in order of appearance from 0."""
        ...

    def used(self) -> MeaningsUsed:
        """Return how meanings are compared."""
        ...


class ExactClusterer:
    """Answers mean the same whose normalised words are the same: right for short answers, too fine for long ones."""

    def clusters(self, asked: Sequence[Answers]) -> list[tuple[int, ...]]:
        """Number the meanings of each question's answers."""
        return [number_clusters([wording(text, action) for text, action in zip(one.texts, one.actions, strict=True)])
                for one in asked]  # fmt: skip

    def used(self) -> MeaningsUsed:
        """Return how meanings are compared."""
        return MeaningsUsed(meaning="exact")


def wording(text: str, action: str | None) -> str:
    """Return what stands for an answer: its normalised words, or that it refuses or abstains."""
    return f"<{action}>" if action in ("refuse", "abstain") else normalised(text)


def normalised(text: str) -> str:
    """Return the words of what was said aloud, without case, punctuation, articles and phrases around the answer.

    Points and commas within numbers stay, but for commas that group thousands: 3.5 is not 35, 1,000 is 1000, and
    -5 is not 5.
    """
    said = unicodedata.normalize("NFKC", spoken(text) or "").replace("\u2019", "'").casefold().strip()
    said = _ASIDE.sub("", said, count=1) if _ASIDE.match(said) else said
    said = _PUNCTUATION.sub(" ", _BETWEEN_DIGITS.sub("", said))
    return " ".join(_ARTICLE.sub(" ", said).split())


def number_clusters(keys: Sequence[str]) -> tuple[int, ...]:
    """Number equal keys alike, in order of appearance from 0."""
    first: dict[str, int] = {}
    return tuple(first.setdefault(key, len(first)) for key in keys)
