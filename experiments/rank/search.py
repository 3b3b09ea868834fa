"""Searches the directions that a way of declining needs: fit, ablate those so far, refit on what still declines.

The training part finds the directions, the validation part decides when to stop. A direction that is fitted with error
leaves some of its decliners declining, and the refit would count its remainder as another one; so the directions are
fitted once more on the validation part, inside the span that was found, where few dimensions leave little error. The
effects are counted on the test part (`growth.py`), of which the search knows nothing.

It runs on anything that can be ablated: a model (`measure.py`), or in tests a function of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.rank.candidates import NextDirection, Streams, candidates, write_candidate
from experiments.rank.results import RankFit
from experiments.run.config import MOST_DIRECTIONS
from probes.statistics.intervals import effective_groups
from probes.statistics.tango import tango
from probes.subspace import project_out

Basis = Float[np.ndarray, "k d_model"]  # orthonormal, float64
Part = Literal["train", "validation", "test"]
MIN_LEFT = 5  # decliners that still decline; fewer cannot be fitted on
PATIENCE = 2  # directions in a row that together add less than the margin end the search


@dataclass(frozen=True)
class SpanOutcomes:
    """What an ablation does to decliners."""

    stopped: Bool[np.ndarray, " decliners"]  # act on the request
    still: Bool[np.ndarray, " decliners"]  # decline in the same way; the rest does neither


class Ablatable(Protocol):
    """A model or function whose decliners are ablated."""

    layer: int  # of the write direction

    def groups(self, part: Part) -> Shaped[np.ndarray, " decliners"]:
        """Return the group of each decliner of a part."""
        ...

    def outcomes(self, part: Part, basis: Basis, among: Int[np.ndarray, " n"]) -> SpanOutcomes:
        """Ablate a subspace and return the outcomes of some decliners of a part, in the order of `among`."""
        ...

    def streams(self, part: Part, basis: Basis) -> list[Streams]:
        """Return the streams of a part's samples at each candidate layer under the ablation."""
        ...

    def scores(self, bases: Sequence[Basis]) -> Float[np.ndarray, " bases"]:
        """Return how strongly validation decliners decline under each ablation: low is good."""
        ...


@dataclass(frozen=True)
class SearchedDirections:
    """The directions of a search, most effective first, and why it stopped."""

    basis: Basis
    fits: tuple[RankFit, ...]
    why_stopped: str


def search(
    model: Ablatable, first: Float[np.ndarray, " d_model"], margin: float, alpha: float, k: int | None
) -> SearchedDirections:
    """Find directions, starting with the write direction.

    Args:
        k: find so many, whatever they add; None stops by the rules of `_finished`.
    """
    directions, fits, stopped = [write_candidate(first, model.layer)], list[RankFit](), list[np.ndarray]()
    still = np.arange(len(model.groups("train")))
    while True:
        basis, latest = np.stack([direction.vector for direction in directions]), directions[-1]
        n, still = len(still), still[model.outcomes("train", basis, still).still]
        stopped.append(model.outcomes("validation", basis, _all(model, "validation")).stopped)
        fits.append(
            RankFit(
                fitted_by=latest.fitted_by,
                layer=latest.layer,
                fitted_on=n,
                still_declining=len(still),
                stopped_on_validation=float(stopped[-1].mean()),
            )
        )
        why = f"{k} directions were asked for" if len(directions) == k else _finished(model, stopped, margin, alpha, k)
        if not why and len(still) < MIN_LEFT:
            why = f"{len(still)} training prompts still decline, {MIN_LEFT} are needed to fit another direction"
        following = None if why else _next(model, "train", basis, np.isin(_all(model, "train"), still))
        if following is None:
            why = why or "no further direction separates what still declines from what is answered"
            return SearchedDirections(_refitted(model, basis), tuple(fits), why)
        directions.append(following)


def _finished(model: Ablatable, stopped: Sequence[np.ndarray], margin: float, alpha: float, k: int | None) -> str:
    """Return why no further direction is fitted, or "".

    One useless direction does not end the search: a direction may have an effect only together with the next.
    """
    if k is not None:
        return ""
    if len(stopped) == MOST_DIRECTIONS:
        return f"{MOST_DIRECTIONS} directions are the most that are tried"
    if len(stopped) <= PATIENCE:
        return ""
    gained = tango(stopped[-1], stopped[-1 - PATIENCE], effective_groups(model.groups("validation")), alpha)
    if gained.high >= margin:
        return ""
    return f"the last {PATIENCE} directions add less than {margin:.0%} on validation prompts ({gained:.0%})"


def _next(
    model: Ablatable,
    part: Part,
    basis: Basis,
    still: Bool[np.ndarray, " decliners"],
    span: Basis | None = None,
    more: Sequence[NextDirection] = (),
) -> NextDirection | None:
    """Return the candidate after whose ablation validation prompts decline least; None if nothing can be fitted."""
    tried = [*candidates(model.streams(part, basis), still, basis, span), *more]
    if len(tried) < 2:
        return tried[0] if tried else None
    return tried[int(np.argmin(model.scores([np.vstack([basis, one.vector]) for one in tried])))]


def _refitted(model: Ablatable, basis: Basis) -> Basis:
    """Fit the directions again inside their span, on validation prompts; one direction alone stays as it is."""
    turned, still = basis[:0], np.ones(len(model.groups("validation")), dtype=bool)
    while len(basis) > 1 and len(turned) < len(basis) - 1 and still.any():
        own = [write_candidate(one, model.layer) for one in _rest(basis, turned)]
        best = _next(model, "validation", turned, still, basis, own)
        if best is None:
            break
        turned = np.vstack([turned, best.vector])
        still &= model.outcomes("validation", turned, _all(model, "validation")).still
    rest = np.linalg.svd(project_out(basis, turned), full_matrices=False)[2]  # spans what is left of the basis
    return np.vstack([turned, rest[: len(basis) - len(turned)]])


def _rest(basis: Basis, turned: Basis) -> Basis:
    """Return what the basis vectors hold beyond the turned ones, each of unit length; very short ones are left out."""
    left = project_out(project_out(basis, turned), turned)
    length = np.linalg.norm(left, axis=1)
    return left[length > 0.1] / length[length > 0.1, None]


def _all(model: Ablatable, part: Part) -> Int[np.ndarray, " decliners"]:
    return np.arange(len(model.groups(part)))
