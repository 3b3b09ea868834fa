"""Candidate thresholds of a probability, halfway in log-odds between the samples' values."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logit

MAX_CANDIDATES = 48
NEAREST = 1e-12  # smallest distance to 0 and 1, where log-odds are infinite


def candidate_thresholds(
    probability: Float[np.ndarray, " samples"], y: Bool[np.ndarray, " samples"], most: int = MAX_CANDIDATES
) -> Float[np.ndarray, " thresholds"]:
    """Return increasing thresholds, including 0 (below all samples) and 1 (above nearly all).

    Args:
        probability: predicted probability of the positive class.
        y: whether a sample is of the positive class.
        most: the largest number of thresholds besides 0 and 1.

    Corners of the ROC curve come first: a threshold between two samples of one class is dominated by its neighbour. The
    remaining thresholds are evenly spaced over both classes, so that the trade-off surface is covered.
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
    """Return at most `most` of the indices, evenly spaced."""
    if len(index) <= most:
        return index
    return index[np.unique(np.linspace(0, len(index) - 1, most).round().astype(int))]
