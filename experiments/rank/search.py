"""Searches the directions that a way of declining needs: fit, ablate those so far, refit on what still declines.

The training part finds the directions, the validation part decides when to stop; the effects are counted on the test
part (`measure.py`), of which the search knows nothing. Why directions are fitted again within their span, and in three
ways, of which each may miss what another finds: docs/ablating.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int, Real, Shaped

from experiments.rank.results import RankFit
from experiments.run.config import MOST_DIRECTIONS
from probes.direction import project_out
from probes.means import difference_in_means, usable_strata
from probes.statistics.intervals import effective_groups, tango

Basis = Float[np.ndarray, "k d_model"]  # orthonormal, float64
Part = Literal["train", "validation", "test"]
HELD_OUT: tuple[Part, Part] = ("validation", "test")
MIN_LEFT = 5  # decliners that still decline; fewer cannot be fitted on
VANISHED = 1e-4  # relative to the activations; a shorter fit is rounding
PATIENCE = 2  # directions in a row that together add less than the margin end the search


@dataclass(frozen=True)
class Streams:
    """The streams of samples at one layer, under an ablation; the declining samples in the order of their outcomes."""

    layer: int
    X: Real[np.ndarray, "samples d_model"]
    declined: Bool[np.ndarray, " samples"]  # at baseline
    strata: Shaped[np.ndarray, " samples"]


@dataclass(frozen=True, eq=False)
class NextDirection:
    """One more direction: a unit vector orthogonal to the basis so far, and how it was fitted."""

    vector: Float[np.ndarray, " d_model"]  # float64
    fitted_by: str
    layer: int


@dataclass(frozen=True)
class SpanOutcomes:
    """What an ablation does to decliners."""

    stopped: Bool[np.ndarray, " decliners"]  # act on the request
    still: Bool[np.ndarray, " decliners"]  # decline in the same way; the rest does neither


class Ablatable(Protocol):
    """A model or function whose decliners are ablated (`AblatedModel` says what each returns)."""

    layer: int  # of the write direction

    def groups(self, part: Part) -> Shaped[np.ndarray, " decliners"]: ...
    def outcomes(self, part: Part, basis: Basis, among: Int[np.ndarray, " n"]) -> SpanOutcomes: ...
    def streams(self, part: Part, basis: Basis) -> list[Streams]: ...
    def scores(self, bases: Sequence[Basis]) -> Float[np.ndarray, " bases"]: ...


@dataclass(frozen=True)
class SearchedDirections:
    """The directions of a search, most effective first, and why it stopped."""

    basis: Basis
    fits: tuple[RankFit, ...]
    why_stopped: str


def search(
    model: Ablatable, first: Float[np.ndarray, " d_model"], margin: float, alpha: float, k: int | None
) -> SearchedDirections:
    """Find k directions, whatever they add, starting with the write direction; None stops by `_finished`."""
    directions, fits, stopped = [_write_candidate(first, model.layer)], list[RankFit](), list[np.ndarray]()
    still = _all(model, "train")
    while True:
        basis, latest = np.stack([direction.vector for direction in directions]), directions[-1]
        n, still = len(still), still[model.outcomes("train", basis, still).still]
        stopped.append(model.outcomes("validation", basis, _all(model, "validation")).stopped)
        counts = {"fitted_on": n, "still_declining": len(still), "stopped_on_validation": float(stopped[-1].mean())}
        fits.append(RankFit(fitted_by=latest.fitted_by, layer=latest.layer, **counts))
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
        left = project_out(project_out(basis, turned), turned)  # what the basis holds beyond the turned directions
        own = [_write_candidate(one, model.layer) for one in left if np.linalg.norm(one) > 0.1]
        best = _next(model, "validation", turned, still, basis, own)
        if best is None:
            break
        turned = np.vstack([turned, best.vector])
        still &= model.outcomes("validation", turned, _all(model, "validation")).still
    rest = np.linalg.svd(project_out(basis, turned), full_matrices=False)[2]  # spans what is left of the basis
    return np.vstack([turned, rest[: len(basis) - len(turned)]])


def _all(model: Ablatable, part: Part) -> Int[np.ndarray, " decliners"]:
    return np.arange(len(model.groups(part)))


# -- candidates --------------------------------------------------------------------------------------------------------


def candidates(
    streams: Sequence[Streams],
    still: Bool[np.ndarray, " decliners"],
    basis: Float[np.ndarray, "k d_model"],
    span: Float[np.ndarray, "dimensions d_model"] | None = None,
) -> list[NextDirection]:
    """Fit the next direction at each layer, in each way, from declining samples that still decline and answered ones.

    What lies in the basis or is rounding is left out. Only directions inside the orthonormal `span` are found.
    """
    if not still.any():
        return []
    fitted = []
    for at in streams:
        used = ~at.declined
        used[at.declined] = still
        X = project_out(at.X[used].astype(np.float64), basis)
        X = X if span is None else (X @ span.T) @ span
        y, strata = at.declined[used], at.strata[used]
        fits = {"difference in means": difference_in_means(X, y), "spread": spread(X, y, strata)}
        if usable_strata(y, strata) and len(set(strata.tolist())) > 1:
            fits["difference in means within strata"] = difference_in_means(X, y, strata)
        least = VANISHED * float(np.abs(X).max())
        for name, vector in fits.items():
            vector = project_out(vector[None], basis)[0]
            if np.isfinite(vector).all() and np.linalg.norm(vector) > least:
                vector = project_out(_unit(vector)[None], basis)[0]  # once more: orthogonal to rounding
                fitted.append(NextDirection(_unit(vector), name, at.layer))
    return fitted


def spread(
    X: Float[np.ndarray, "samples d_model"], y: Bool[np.ndarray, " samples"], strata: Shaped[np.ndarray, " samples"]
) -> Float[np.ndarray, " d_model"]:
    """Return the direction along which positive samples spread most beyond negative ones; its length is the excess.

    Both second moments are about the negative mean, of the sample's stratum where it has negative samples. Signed so
    that the positive mean is not below zero; zero if no direction has an excess.
    """
    centred = X - X[~y].mean(axis=0)
    for name in set(strata[~y].tolist()):
        inside = strata == name
        centred[inside] = X[inside] - X[inside & ~y].mean(axis=0)
    inner = np.linalg.qr(centred.T)[0]  # (d_model, at most samples): nothing lies outside it
    positive, negative = (centred[side] @ inner for side in (y, ~y))
    excess = positive.T @ positive / len(positive) - negative.T @ negative / len(negative)
    values, vectors = np.linalg.eigh(excess)
    vector: np.ndarray = inner @ vectors[:, -1]
    sign = 1.0 if centred[y].mean(axis=0) @ vector >= 0 else -1.0
    return max(float(values[-1]), 0.0) * sign * vector


def _unit(vector: Float[np.ndarray, " d_model"]) -> np.ndarray:
    unit: np.ndarray = vector / np.linalg.norm(vector)
    return unit


def _write_candidate(vector: Float[np.ndarray, " d_model"], layer: int) -> NextDirection:
    return NextDirection(_unit(np.asarray(vector, dtype=np.float64)), "write direction", layer)
