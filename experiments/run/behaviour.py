"""Baseline behaviour of a model: which prompts it declines and how, and the samples for fitting write directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from experiments.run.corpus import Corpus
from probes.statistics.permutation import n_labellings, permuted_labels
from scoring.actions import ANSWERED, DECLINED

Kind = Literal["normative", "epistemic"]
# by what declines are of a kind; free_thought: by wording, after the thought that the model then has
Basis = Literal["wording", "reason", "elicited", "free_thought"]
KINDS: tuple[Kind, Kind] = ("normative", "epistemic")
ACTION_OF: dict[Kind, str] = {"normative": "refuse", "epistemic": "abstain"}
DECLINES: dict[Kind, str] = {"normative": "refusals", "epistemic": "abstentions"}  # in sentences
MIN_BASELINE = 20  # a behaviour with fewer occurrences is absent (METHODS)
MIN_GROUPS = 10  # independent groups of decliners; with fewer, intervals are too wide to be useful
MIN_STRATUM = 5  # least samples of each class for a stratum to be used for a write direction


@dataclass(frozen=True)
class Behaviour:
    """The action of the model on each prompt of a corpus, and by what its declines are of a kind.

    By wording they are what the judge says. By reason any decline of an uncertain prompt or its twin is epistemic, any
    other normative, however it is worded: a twin is declined as unknown, if wrongly, a benign request as harmful.
    """

    corpus: Corpus
    actions: np.ndarray  # (n,) object: action names, None if unjudged
    correct: np.ndarray  # (n,) bool: the completion states the prompt's known answer
    # Kinds whose write samples contrast the labels, because the direction within labels stops no declines (probing).
    by_label: frozenset[Kind] = frozenset()
    basis: Basis = "wording"
    captured: np.ndarray | None = None  # (n,) bool: of a model that thinks, whether the thought was; None: nothing is

    def did(self, action: str) -> np.ndarray:
        """Return for each prompt whether the model took this action, (n,) bool."""
        return self.actions == action

    @property
    def answered(self) -> np.ndarray:
        """Whether each prompt is answered, with a caveat, a corrected premise or neither, (n,) bool."""
        return np.isin(self.actions.astype(str), sorted(ANSWERED))

    @property
    def judged(self) -> np.ndarray:
        """Which prompts have an action, (n,) bool."""
        return np.array([action is not None for action in self.actions], dtype=bool)

    @property
    def declining(self) -> np.ndarray:
        """Whether each prompt is declined in either way, (n,) bool."""
        return np.isin(self.actions.astype(str), sorted(DECLINED))

    def declined(self, kind: Kind) -> np.ndarray:
        """Return for each prompt whether it is declined in this kind's way, (n,) bool."""
        if self.basis != "reason":
            return self.did(ACTION_OF[kind])
        of_knowledge = self.corpus.of_knowledge
        return self.declining & self.corpus.rated & (of_knowledge if kind == "epistemic" else ~of_knowledge)

    @property
    def ways(self) -> np.ndarray:
        """The actions with each decline as that of its kind, (n,) object."""
        ways = self.actions.copy()
        for kind in KINDS:
            ways[self.declined(kind)] = ACTION_OF[kind]
        return ways

    def actions_of(self, kind: Kind) -> frozenset[str]:
        """Return the actions that are declines of this kind on its own prompts."""
        return frozenset(DECLINED if self.basis == "reason" else {ACTION_OF[kind]})

    def sides(self, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
        """Return a kind's prompts to be declined and the benign ones to compare them with, (n,) bool each."""
        corpus = self.corpus
        return (corpus.harmful, corpus.requests) if kind == "normative" else (corpus.uncertain, corpus.twins)

    def decliners(self, kind: Kind, *parts: str) -> np.ndarray:
        """Return the rows that correctly decline: harmful prompts refused, uncertain prompts abstained from."""
        return np.flatnonzero(self.sides(kind)[0] & self.declined(kind) & self.corpus.within(*parts))

    def answered_benign(self, *parts: str) -> np.ndarray:
        return np.flatnonzero(self.corpus.benign & self.answered & self.corpus.within(*parts))


@dataclass(frozen=True)
class WriteSamples:
    """Declined against answered training prompts, within strata that hold both."""

    rows: np.ndarray  # (n,) int, of the corpus
    declined: np.ndarray  # (n,) bool
    strata: np.ndarray  # (n,) object: names
    groups: np.ndarray  # (n,) int: samples that may depend on each other, so that a null permutes them together
    within_label: bool  # False if no stratum holds both, so that labels and behaviour coincide

    @classmethod
    def of(cls, corpus: Corpus, declining: np.ndarray, answered: np.ndarray, *, within_label: bool) -> Self:
        """Return the samples of rows that decline and rows that are answered, all in one stratum."""
        rows = np.concatenate([declining, answered])
        declined, strata = np.arange(len(rows)) < len(declining), np.full(len(rows), "all", dtype=object)
        return cls(rows, declined, strata, corpus.groups_among(rows), within_label)

    def permuted(self, rng: np.random.Generator) -> np.ndarray:
        """Return behaviour labels permuted within strata and with whole groups, for the null, (n,) bool."""
        return permuted_labels(self.declined, 1, rng, groups=self.groups, strata=self.strata)[0]

    def permutations(self, rng: np.random.Generator, times: int) -> np.ndarray:
        return np.stack([self.permuted(rng) for _ in range(times)])

    @property
    def n_labellings(self) -> float:
        """The number of distinct labellings that `permuted` draws from."""
        return n_labellings(self.declined, groups=self.groups, strata=self.strata)


def write_samples(behaviour: Behaviour, kind: Kind) -> WriteSamples | None:
    """Choose the samples of a write direction; None if the model declines in this way, or answers, too rarely.

    Strata are those of label, category and trigger, whose content is the most alike; where these hold too few samples
    of both classes, they are the labels alone. Prompts of the other kind are left out, however they are declined: a
    direction of refusals must not hold what makes a question unknown.
    """
    corpus, declined, (label, other) = behaviour.corpus, behaviour.declined(kind), behaviour.sides(kind)
    usable = (declined | behaviour.answered) & (label | other) & corpus.within("train")
    if behaviour.captured is not None:
        usable &= behaviour.captured
    if int((declined & usable).sum()) < MIN_BASELINE or int((behaviour.answered & usable).sum()) < MIN_BASELINE:
        return None
    labels = np.array([prompt.label for prompt in corpus.prompts], dtype=object)
    for strata in () if kind in behaviour.by_label else (corpus.strata, labels):  # many small ones hold none of both
        code = np.unique(strata, return_inverse=True)[1]
        fewest = np.minimum(*(np.bincount(code, side & usable) for side in (declined, ~declined)))
        inside = usable & (fewest >= MIN_STRATUM)[code]  # in a stratum with enough usable samples of each class
        if within_label := int((declined & inside).sum()) >= MIN_BASELINE:
            break
    else:  # only the contrast of labels remains
        strata, within_label = labels, False
        inside = usable & ((label & declined) | (other & ~declined))
        if min(int((declined & inside).sum()), int((~declined & inside).sum())) < MIN_BASELINE:
            return None
    rows = np.flatnonzero(inside)
    kept = strata[rows] if within_label else np.full(len(rows), "all", dtype=object)
    return WriteSamples(rows, declined[rows], kept, corpus.groups_among(rows), within_label)
