"""Clusters of answers with the same meaning, by normalised wording or by an NLI model (entailment.py).

All refusals have one meaning, and so have all abstentions, by the rule judge. The known answer is not used: agreement
with it would make right answers look more certain than wrong ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.uncertainty.results import MeaningsUsed
from scoring.judges.visible_text import visible_text

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
    """The answers to one question with their actions (None where unjudged)."""

    question: str
    texts: tuple[str, ...]
    actions: tuple[str | None, ...]


class MeaningClusterer(Protocol):
    """Protocol: finds the answers that have the same meaning."""

    def clusters(self, asked: Sequence[Answers]) -> list[tuple[int, ...]]:
        """Return the cluster number of each answer of each question, in order of appearance from 0."""
        ...

    def used(self) -> MeaningsUsed:
        """Return the record of the method."""
        ...


class ExactClusterer:
    """Clusters answers by equal normalised wording: right for short answers, too fine for long ones."""

    def clusters(self, asked: Sequence[Answers]) -> list[tuple[int, ...]]:
        """Return the cluster number of each answer of each question."""
        return [
            number_clusters([wording(text, action) for text, action in zip(one.texts, one.actions, strict=True)])
            for one in asked
        ]

    def used(self) -> MeaningsUsed:
        """Return the record of the method."""
        return MeaningsUsed(meaning="exact")


def wording(text: str, action: str | None) -> str:
    """Return the key of an answer: its normalised words, or its action if it refuses or abstains."""
    return f"<{action}>" if action in ("refuse", "abstain") else normalised(text)


def normalised(text: str) -> str:
    """Return the words of an answer without its thoughts, case, punctuation, articles and framing phrases.

    Points and commas within numbers are kept, except commas that group thousands: 3.5 is not 35, 1,000 is 1000, and
    -5 is not 5.
    """
    words = unicodedata.normalize("NFKC", visible_text(text) or "").replace("\u2019", "'").casefold().strip()
    words = _ASIDE.sub("", words, count=1) if _ASIDE.match(words) else words
    words = _PUNCTUATION.sub(" ", _BETWEEN_DIGITS.sub("", words))
    return " ".join(_ARTICLE.sub(" ", words).split())


def number_clusters(keys: Sequence[str]) -> tuple[int, ...]:
    """Give equal keys the same number, in order of appearance from 0."""
    first: dict[str, int] = {}
    return tuple(first.setdefault(key, len(first)) for key in keys)
