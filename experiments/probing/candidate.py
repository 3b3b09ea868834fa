"""Candidate write directions: bypass, induce and KL of each, the rule that chooses one, and the search for it.

Directions fitted on permuted labels (the null) are chosen by the same rule on the same prompts: a rule that fits the
real direction better would make it look special. A search asks for measurements and is sent the answers, so that many
searches share their forward passes (`run_searches`): each draw of the permutation null is one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from experiments.probing.results import KEPT, CandidateRecord, Discarded
from experiments.responses.divergence import Divergence
from probes.direction import Direction

RARE = 0.01  # probability of declining below which bypass values count as equal
FLOOR = float(np.log(RARE / (1 - RARE)))
TIE = 0.15  # differences of bypass or induce within this are ties, in log-odds
UNMEASURED = float("nan")
UNMEASURED_KL = Divergence(UNMEASURED, UNMEASURED, UNMEASURED, UNMEASURED)


@dataclass(frozen=True)
class Candidate:
    """A write direction and the results of intervening with it on validation prompts."""

    direction: Direction
    bypass: float  # mean onset log-odds of decliners under ablation: low is good
    bypass_floored: float  # the same, with probabilities of declining below `RARE` raised to `RARE`
    induce: (
        float  # mean onset log-odds of declining in either way, answered benign prompts under addition: high is good
    )
    kl: Divergence  # of benign prompts under ablation, over the first tokens of the model's own responses

    @classmethod
    def of(cls, direction: Direction, bypass: Float[np.ndarray, " decliners"], induce: float) -> Candidate:
        """Return a candidate whose KL is not measured yet."""
        return cls(direction, float(bypass.mean()), floored(bypass), float(induce), UNMEASURED_KL)

    @classmethod
    def unmeasured(cls, direction: Direction) -> Candidate:
        """Return a candidate of which nothing is measured yet."""
        return cls(direction, UNMEASURED, UNMEASURED, UNMEASURED, UNMEASURED_KL)

    def discarded(self, max_kl: float) -> Discarded | None:
        """Return the rule that a candidate breaks, or None. (Layers that are too deep are no candidates.)"""
        if not np.isfinite([self.bypass, self.induce, self.kl.worst_step]).all():
            return "not_finite"
        return "kl" if self.kl.worst_step > max_kl else "induce" if self.induce < 0 else None

    def record(self, max_kl: float) -> CandidateRecord:
        """Return the record for results.json, with None for values that are not finite."""
        values = {
            "bypass": self.bypass,
            "bypass_floored": self.bypass_floored,
            "induce": self.induce,
            "kl": self.kl.mean,
            "kl_max": self.kl.maximum,
            "kl_first_token": self.kl.first_token,
            "kl_worst_step": self.kl.worst_step,
        }
        finite = {name: value if np.isfinite(value) else None for name, value in values.items()}
        locus = self.direction.locus
        return CandidateRecord(layer=locus.layer, position=locus.position, **finite, discarded=self.discarded(max_kl))


def select(candidates: Sequence[Candidate], max_kl: float) -> tuple[Candidate, bool]:
    """Return the usable candidate of least bypass, and whether there is one.

    Without a usable one, it is chosen among those that induce too little but are within the KL limit; without these, it
    is the candidate of least KL: an ablation that breaks the model opens with none of the onset prefixes, and so would
    bypass every decline. Permuted-label directions seldom induce declining, so this is the rule of most of them.

    A decliner below a probability of `RARE` is bypassed; how far below carries no information, so bypass is floored
    there. Among ties (within `TIE`) of bypass, those with the highest induce (again within `TIE`) are kept, and of
    these the earliest layer is chosen: there the decision is first written.
    """
    usable = [c for c in candidates if c.discarded(max_kl) is None]
    pool = usable or [c for c in candidates if c.discarded(max_kl) == "induce"]
    if not pool:
        return min(candidates, key=lambda c: np.nan_to_num(c.kl.worst_step, nan=np.inf)), False
    least = min(c.bypass_floored for c in pool)
    pool = [c for c in pool if c.bypass_floored <= least + TIE]
    most = max(c.induce for c in pool)
    pool = [c for c in pool if c.induce >= most - TIE]
    return min(pool, key=lambda c: (c.direction.locus.layer, -c.induce)), bool(usable)


def floored(bypass: Float[np.ndarray, " decliners"]) -> float:
    """Return the mean onset log-odds, with probabilities of declining below `RARE` raised to `RARE`."""
    return float(np.maximum(bypass, FLOOR).mean())


Choice = tuple[Candidate, bool]  # and whether it meets the selection rules
Estimate = Callable[[Direction], tuple[float, float]]  # bypass and induce of a candidate


@dataclass(frozen=True)
class Question:
    """What a search wants to know next of some candidates: bypass and induce, or the KL."""

    about: Literal["effects", "kl"]
    candidates: Sequence[Candidate]


Search = Generator[Question, list[Candidate], Choice]


def search(directions: Sequence[Direction], max_kl: float, estimate: Estimate | None = None) -> Search:
    """Choose among directions as `select` does; KL is measured only where the choice depends on it.

    With an estimate, only the best are measured, three at a time, the least estimated bypass first: first those that
    are estimated to induce declining, until one meets the rules, then the others, until one is within the limit of KL.
    """
    measured: list[Candidate] = []
    for portion, promising in _portions(directions, estimate):
        tried = yield Question("effects", [Candidate.unmeasured(direction) for direction in portion])
        measured += yield from _with_kl(sorted(tried, key=_order), max_kl)
        enough = (None,) if promising else (None, "induce")
        if any(candidate.discarded(max_kl) in enough for candidate in measured):
            break
    return select(measured, max_kl)


def run_searches(
    searches: Sequence[Search],
    effects: Callable[[Sequence[Direction]], list[Candidate]],
    kl: Callable[[Sequence[Candidate]], list[Candidate]],
) -> list[Choice]:
    """Return what each search chooses; the questions of all searches are answered together.

    Args:
        effects: measures bypass and induce of directions.
        kl: measures the KL of candidates.
    """
    asked = {i: next(each) for i, each in enumerate(searches)}
    chosen: dict[int, Choice] = {}
    while asked:
        about = "effects" if any(question.about == "effects" for question in asked.values()) else "kl"
        answered = {i: question for i, question in asked.items() if question.about == about}
        together = [candidate for question in answered.values() for candidate in question.candidates]
        measured = iter(effects([c.direction for c in together]) if about == "effects" else kl(together))
        for i, question in answered.items():
            try:
                asked[i] = searches[i].send([next(measured) for _ in question.candidates])
            except StopIteration as end:
                chosen[i] = end.value
                del asked[i]
    return [chosen[i] for i in range(len(searches))]


def _portions(directions: Sequence[Direction], estimate: Estimate | None) -> Iterator[tuple[list[Direction], bool]]:
    """Yield the directions in the order of measuring, and whether each portion is estimated to induce declining."""
    if estimate is None:
        yield list(directions), False
        return
    estimates = ((*estimate(direction), direction) for direction in directions)
    estimated = sorted(estimates, key=lambda each: float(np.nan_to_num(each[0], nan=np.inf)))
    for promising in (True, False):
        group = [direction for _, induce, direction in estimated if (induce >= 0) == promising]
        for start in range(0, len(group), KEPT):
            yield group[start : start + KEPT], promising


def _with_kl(tried: Sequence[Candidate], max_kl: float) -> Generator[Question, list[Candidate], list[Candidate]]:
    """Measure the KL of those that induce enough, and of the others where none of them is usable."""
    enough, little = ([c for c in tried if (c.induce >= 0) == wanted] for wanted in (True, False))
    measured = yield from _within_kl(enough, max_kl)
    if not any(c.discarded(max_kl) is None for c in measured):
        measured += yield from _within_kl(little, max_kl)
    return measured


def _within_kl(tried: Sequence[Candidate], max_kl: float) -> Generator[Question, list[Candidate], list[Candidate]]:
    """Measure the KL of candidates, the least bypass first, until the others cannot be chosen."""
    measured, least = list[Candidate](), np.inf
    for candidate in tried:
        if candidate.bypass_floored > least + TIE:
            break
        measured += yield Question("kl", [candidate])
        if measured[-1].discarded(max_kl) in (None, "induce"):
            least = min(least, candidate.bypass_floored)
    return measured


def _order(candidate: Candidate) -> float:
    return float(np.nan_to_num(candidate.bypass_floored, nan=np.inf))
