"""Trade-offs: Pareto front and hypervolume of points (smaller is better), and candidate thresholds of a probability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Integer, Real
from scipy.special import expit, logit


def front(points: Real[np.ndarray, "points axes"]) -> Integer[np.ndarray, " front"]:
    """Return the indices of points that no other point dominates (smaller is better); of equal ones the first.

    Points with NaN are ignored.
    """
    points = np.asarray(points, dtype=float)
    usable = np.flatnonzero(~np.isnan(points).any(axis=1))
    P, first = np.unique(points[usable], axis=0, return_index=True)  # by the first axis: none dominates one before it
    kept, left = [], np.arange(len(P))
    while len(left):
        kept.append(left[0])
        left = left[(P[left] < P[left[0]]).any(axis=1)]
    return usable[np.sort(first[kept])]


def hypervolume(points: Real[np.ndarray, "points 3"], reference: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> float:
    """Return the hypervolume: the volume dominated by three-axis points, up to a reference (Zitzler & Thiele 1999).

    Smaller is better; points beyond the reference and points with NaN add nothing. For rates and the reference
    (1, 1, 1) it is a share of the unit cube: 1 if one point has no errors.
    """
    points = np.asarray(points, dtype=float).reshape(-1, 3)
    P = points[(points < np.array(reference)).all(axis=1)]
    if not len(P):
        return 0.0
    P = P[np.argsort(P[:, 0], kind="stable")]
    levels = np.unique(P[:, 2])
    seen = np.where(P[None, :, 2] <= levels[:, None], P[None, :, 1], reference[1])  # (n_levels, n_points)
    lowest = np.minimum.accumulate(seen, axis=1)
    area = ((reference[1] - lowest) * np.diff(P[:, 0], append=reference[0])).sum(axis=1)
    return float(area @ np.diff(levels, append=reference[2]))


MAX_CANDIDATES = 48
NEAREST = 1e-12  # smallest distance to 0 and 1, where log-odds are infinite


def candidate_thresholds(
    probability: Float[np.ndarray, " samples"], y: Bool[np.ndarray, " samples"], most: int = MAX_CANDIDATES
) -> Float[np.ndarray, " thresholds"]:
    """Return increasing thresholds, `most` at most besides 0 (below all samples) and 1 (above nearly all).

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
    if len(index) <= most:
        return index
    return index[np.unique(np.linspace(0, len(index) - 1, most).round().astype(int))]
