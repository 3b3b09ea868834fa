"""Clusters of meaning by an NLI model: two answers mean the same if each, with the question, entails the other.

As in Kuhn, Gal & Farquhar (arXiv 2302.09664, section 3.2): an answer joins the first cluster whose first member it
entails and is entailed by. The rule judge separates refusals and abstentions first, and answers with the same
normalised wording are in one cluster without the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations

import torch

from experiments.uncertainty.meaning import (
    Answers,
    ExactClusterer,
    MeaningClusterer,
    normalised,
    number_clusters,
    wording,
)
from experiments.uncertainty.results import MeaningsUsed
from extract.backoff import TokenBudget
from extract.errors import UserError
from extract.model.loading import load_classifier
from extract.model.weights import fingerprint
from scoring.judges.visible_text import visible_text

LONGEST = 512  # tokens of a pair; the longer of the two texts is truncated first
BATCH = 32  # pairs of this length in a batch; more where they are shorter
_ENTAILS = re.compile(r"(?<![a-z])entail", re.IGNORECASE)
_NEGATED = re.compile(r"(?:^|[^a-z])(?:not?|non|contra)[^a-z]*entail", re.IGNORECASE)
Pair = tuple[str, str]


def open_clusterer(given: str) -> MeaningClusterer:
    """Return the clusterer named `exact`, or one with the NLI model of a hub id or directory.

    Raises:
        UserError: the model cannot be loaded, or none of its labels clearly means entailment.
    """
    return ExactClusterer() if given == "exact" else EntailmentClusterer(given)


class EntailmentClusterer:
    """Clusters answers by a text-pair classifier with a label for entailment.

    Raises:
        UserError: the model cannot be loaded, or none of its labels clearly means entailment.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._model, self._tokenizer, self._revision = load_classifier(name)
        self._label = entailment_label(name, {int(i): str(label) for i, label in self._model.config.id2label.items()})
        reads = getattr(self._model.config, "max_position_embeddings", None) or LONGEST
        self._longest = min(LONGEST, int(self._tokenizer.model_max_length), int(reads))
        self._budget = TokenBudget(BATCH * LONGEST)

    def clusters(self, asked: Sequence[Answers]) -> list[tuple[int, ...]]:
        """Return the cluster number of each answer of each question, in order of appearance from 0."""
        keys = [[wording(text, action) for text, action in zip(one.texts, one.actions, strict=True)] for one in asked]
        pairs = {
            pair for one, of in zip(asked, keys, strict=True) for pair in permutations(_texts(one, of).values(), 2)
        }
        entailed = self._entailed(sorted(pairs))
        return [cluster_wordings(of, _texts(one, of), entailed) for one, of in zip(asked, keys, strict=True)]

    def used(self) -> MeaningsUsed:
        """Return the record of the NLI model."""
        return MeaningsUsed(
            meaning="nli",
            model=self._name,
            revision=self._revision,
            weights=fingerprint(self._model),
            entailment=str(self._model.config.id2label[self._label]),
        )

    def _entailed(self, pairs: Sequence[Pair]) -> set[Pair]:
        """Return the pairs whose most probable label is entailment."""
        rows = [dict(self._tokenizer(*pair, truncation="longest_first", max_length=self._longest)) for pair in pairs]
        found: set[Pair] = set()

        def work(places: list[int]) -> None:
            batch = self._tokenizer.pad([rows[place] for place in places], return_tensors="pt")
            with torch.inference_mode():
                likeliest = self._model(**batch.to(self._model.device)).logits.argmax(dim=-1).tolist()
            found.update(pairs[place] for place, label in zip(places, likeliest, strict=True) if label == self._label)

        self._budget.run([len(row["input_ids"]) for row in rows], work)
        return found


def entailment_label(name: str, labels: dict[int, str]) -> int:
    """Return the index of the label that means entailment.

    Raises:
        UserError: no label, or more than one, means entailment.
    """
    found = [i for i, label in labels.items() if _ENTAILS.search(label) and not _NEGATED.search(label)]
    if len(found) != 1:
        listed = ", ".join(labels.values())
        raise UserError(
            f"uncertainty.meaning: {name} has no single label that means entailment (its labels are "
            f"{listed}); give an NLI model with a label such as ENTAILMENT, or exact"
        )
    return found[0]


def cluster_wordings(keys: Sequence[str], texts: dict[str, str], entailed: set[Pair]) -> tuple[int, ...]:
    """Return cluster numbers: a wording joins the first cluster whose first member it entails in both directions.

    Args:
        keys: the wording of each answer.
        texts: the text of each wording to compare; any other wording is a cluster of its own.
    """
    joins: dict[str, str] = {}
    firsts: list[str] = []
    for key in dict.fromkeys(keys):
        same = (first for first in firsts if key in texts and _both(texts[key], texts[first], entailed))
        joins[key] = next(same, key)
        firsts += [key] if joins[key] == key and key in texts else []
    return number_clusters([joins[key] for key in keys])


def _both(one: str, other: str, entailed: set[Pair]) -> bool:
    return (one, other) in entailed and (other, one) in entailed


def _texts(one: Answers, keys: Sequence[str]) -> dict[str, str]:
    """Return the text (question and answer) that the NLI model reads for each wording."""
    texts = reversed(list(zip(one.texts, keys, strict=True)))
    return {key: f"{one.question} {visible_text(text)}" for text, key in texts if key and key == normalised(text)}
