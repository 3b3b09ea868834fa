"""Clusters of answers with the same meaning, by normalised wording or an NLI model (arXiv 2302.09664, section 3.2).

The known answer is not used: agreement with it would make right answers look more certain than wrong ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import torch

from experiments.uncertainty.results import MeaningsUsed
from extract.backoff import TokenBudget
from extract.errors import UserError
from extract.model.loading import load_classifier
from extract.model.weights import fingerprint
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
class JudgedAnswers:
    """The answers to one question with their actions (None where unjudged)."""

    question: str
    texts: tuple[str, ...]
    actions: tuple[str | None, ...]


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


LONGEST = 512  # tokens of a pair; the longer of the two texts is truncated first
BATCH = 32  # pairs of this length in a batch; more where they are shorter
_ENTAILS = re.compile(r"(?<![a-z])entail", re.IGNORECASE)
_NEGATED = re.compile(r"(?:^|[^a-z])(?:not?|non|contra)[^a-z]*entail", re.IGNORECASE)
Pair = tuple[str, str]


class ExactClusterer:
    """Clusters answers by equal normalised wording: right for short answers, too fine for long ones."""

    def clusters(self, asked: Sequence[JudgedAnswers]) -> list[tuple[int, ...]]:
        """Return the cluster number of each answer of each question, in order of appearance from 0."""
        keys = [[wording(text, action) for text, action in zip(one.texts, one.actions, strict=True)] for one in asked]
        texts = [_texts(one, of) for one, of in zip(asked, keys, strict=True)]
        entailed = self._entailed(sorted({pair for of in texts for pair in permutations(of.values(), 2)}))
        return [cluster_wordings(of, said, entailed) for of, said in zip(keys, texts, strict=True)]

    def used(self) -> MeaningsUsed:
        return MeaningsUsed(meaning="exact")

    def _entailed(self, pairs: Sequence[Pair]) -> set[Pair]:
        return set()


class EntailmentClusterer(ExactClusterer):
    """Clusters by a text-pair classifier, too; UserError: it cannot be loaded, or no one label means entailment."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._model, self._tokenizer, self._revision = load_classifier(name)
        self._label = entailment_label(name, {int(i): str(label) for i, label in self._model.config.id2label.items()})
        reads = getattr(self._model.config, "max_position_embeddings", None) or LONGEST
        self._longest = min(LONGEST, int(self._tokenizer.model_max_length), int(reads))
        self._budget = TokenBudget(BATCH * LONGEST)

    def used(self) -> MeaningsUsed:
        return MeaningsUsed(
            meaning="nli",
            model=self._name,
            revision=self._revision,
            weights=fingerprint(self._model),
            entailment=str(self._model.config.id2label[self._label]),
        )

    def _entailed(self, pairs: Sequence[Pair]) -> set[Pair]:
        rows = [dict(self._tokenizer(*pair, truncation="longest_first", max_length=self._longest)) for pair in pairs]

        def work(places: list[int]) -> list[int]:
            batch = self._tokenizer.pad([rows[place] for place in places], return_tensors="pt")
            with torch.inference_mode():
                return self._model(**batch.to(self._model.device)).logits.argmax(dim=-1).tolist()

        likeliest = self._budget.map([len(row["input_ids"]) for row in rows], work)
        return {pair for pair, label in zip(pairs, likeliest, strict=True) if label == self._label}


def open_clusterer(given: str) -> ExactClusterer:
    """Return the clusterer named `exact`, or one with the NLI model of a hub id or directory."""
    return ExactClusterer() if given == "exact" else EntailmentClusterer(given)


def entailment_label(name: str, labels: dict[int, str]) -> int:
    """Return the index of the label that means entailment; UserError: there is none, or more than one."""
    indices = [i for i, label in labels.items() if _ENTAILS.search(label) and not _NEGATED.search(label)]
    if len(indices) != 1:
        listed = ", ".join(labels.values())
        raise UserError(
            f"uncertainty.meaning: {name} has no single label that means entailment (its labels are "
            f"{listed}); give an NLI model with a label such as ENTAILMENT, or exact"
        )
    return indices[0]


def cluster_wordings(keys: Sequence[str], texts: dict[str, str], entailed: set[Pair]) -> tuple[int, ...]:
    """Return cluster numbers: a wording joins the first cluster whose first member it entails in both directions."""
    joins: dict[str, str] = {}
    firsts: list[str] = []
    for key in dict.fromkeys(keys):
        same = (
            first
            for first in firsts
            if key in texts and {(texts[key], texts[first]), (texts[first], texts[key])} <= entailed
        )
        joins[key] = next(same, key)
        firsts += [key] if joins[key] == key and key in texts else []
    return number_clusters([joins[key] for key in keys])


def _texts(one: JudgedAnswers, keys: Sequence[str]) -> dict[str, str]:
    """Return the text (question and answer) that the NLI model reads for each wording."""
    texts = reversed(list(zip(one.texts, keys, strict=True)))
    return {key: f"{one.question} {visible_text(text)}" for text, key in texts if key and key == normalised(text)}
