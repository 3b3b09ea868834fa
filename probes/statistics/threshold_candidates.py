"""Candidate thresholds of a probability: halfway in log-odds between the samples' values."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logit

MOST = 48
NEAREST = 1e-12  # to 0 and 1, where log-odds have no end


def candidate_thresholds(
    probability: Float[np.ndarray, " samples"], y: Bool[np.ndarray, " samples"], most: int = MOST
) -> Float[np.ndarray, " thresholds"]:
    """Return increasing thresholds, 0 (all are at or above) and 1 (hardly any is) among them.

    Args:
        probability: of the positive class.
        y: the positive class.
        most: how many there may be beside 0 and 1.

    Corners of the ROC curve come first: a cut between two samples of one class is beaten by its neighbour on false
    positives or false negatives and loses on neither. The room that they leave is filled by cuts evenly spaced over
    both classes, so that the surface has more than its best points.
    """
    p = np.clip(np.asarray(probability, dtype=float), NEAREST, 1 - NEAREST)
    values, inverse = np.unique(p, return_inverse=True)
    if len(values) < 2:
        return np.array([0.0, 1.0])
    between = expit((logit(values[:-1]) + logit(values[1:])) / 2)
    positive, negative = (np.bincount(inverse[side], minlength=len(values)) for side in (y, ~y))
    corner = np.flatnonzero((negative[:-1] > 0) & (positive[1:] > 0))
    taken = set(_spread(corner, (2 * most) // 3).tolist())
    mass = sum(np.cumsum(side)[:-1] / max(1, side.sum()) for side in (positive, negative))
    spread = np.searchsorted(mass, np.linspace(0, 2, most - len(taken) + 2)[1:-1]).clip(0, len(between) - 1)
    taken |= set(spread.tolist())
    return np.concatenate([[0.0], between[sorted(taken)], [1.0]])


def _spread(index: np.ndarray, most: int) -> np.ndarray:
    """Keep at most so many of these, evenly."""
    if len(index) <= most:
        return index
    return index[np.unique(np.linspace(0, len(index) - 1, most).round().astype(int))]
