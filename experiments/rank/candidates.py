"""Candidates for the next direction, from the streams of samples that still decline and of answered ones.

Three fits, because each may miss what another finds:

- *difference in means within strata*, as the first direction was fitted, so that content cancels;
- *difference in means* of all samples: what still declines may lie in strata without any answered sample;
- *spread*: the leading direction of the declining samples' second moment about the answering mean, less the answering
  covariance (contrastive PCA, Abid et al. 2018, arXiv 1709.06716). Where half of the declines carry one of two
  redundant copies and half the other, ablating their sum leaves both halves declining with opposite signs along the
  difference of the two copies, so that the class means are equal and only the spread shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real, Shaped

from probes.means import difference_in_means, usable_strata
from probes.subspace import project_out

VANISHED = 1e-4  # relative to the activations; a shorter fit is rounding


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


def candidates(
    streams: Sequence[Streams],
    still: Bool[np.ndarray, " decliners"],
    basis: Float[np.ndarray, "k d_model"],
    span: Float[np.ndarray, "dimensions d_model"] | None = None,
) -> list[NextDirection]:
    """Fit the next direction at each layer, in each way; what lies in the basis or is rounding is left out.

    Args:
        still: which declining samples still decline; the others are not used.
        span: orthonormal; only directions inside it are found.
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
                fitted.append(NextDirection(_orthogonal(vector, basis), name, at.layer))
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


def _orthogonal(vector: Float[np.ndarray, " d_model"], basis: Float[np.ndarray, "k d_model"]) -> np.ndarray:
    """Normalise a vector and project the basis out once more, so that it is orthogonal to rounding."""
    vector = project_out((vector / np.linalg.norm(vector))[None], basis)[0]
    return vector / np.linalg.norm(vector)


def write_candidate(vector: Float[np.ndarray, " d_model"], layer: int) -> NextDirection:
    """Return the write direction, the first of every basis."""
    wide = np.asarray(vector, dtype=np.float64)
    return NextDirection(wide / np.linalg.norm(wide), "write direction", layer)
