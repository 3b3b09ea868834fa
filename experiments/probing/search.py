"""Searches for a usable write direction: which candidates are measured, in which order, and when it is enough.

A search asks for measurements and is sent the answers, so that many searches share their forward passes
(`run_searches`): each draw of the permutation null is one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from experiments.probing.candidate import TIE, Candidate, select
from experiments.probing.results import KEPT
from probes.direction import Direction

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
    found: list[Candidate] = []
    for portion, promising in _portions(directions, estimate):
        tried = yield Question("effects", [Candidate.unmeasured(direction) for direction in portion])
        found += yield from _with_kl(sorted(tried, key=_order), max_kl)
        enough = (None,) if promising else (None, "induce")
        if any(candidate.discarded(max_kl) in enough for candidate in found):
            break
    return select(found, max_kl)


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
    found = yield from _within_kl(enough, max_kl)
    if not any(c.discarded(max_kl) is None for c in found):
        found += yield from _within_kl(little, max_kl)
    return found


def _within_kl(tried: Sequence[Candidate], max_kl: float) -> Generator[Question, list[Candidate], list[Candidate]]:
    """Measure the KL of candidates, the least bypass first, until the others cannot be chosen."""
    found, least = list[Candidate](), np.inf
    for candidate in tried:
        if candidate.bypass_floored > least + TIE:
            break
        found += yield Question("kl", [candidate])
        if found[-1].discarded(max_kl) in (None, "induce"):
            least = min(least, candidate.bypass_floored)
    return found


def _order(candidate: Candidate) -> float:
    return float(np.nan_to_num(candidate.bypass_floored, nan=np.inf))
