"""Pareto front and hypervolume of points; smaller is better on every axis."""

from __future__ import annotations

import numpy as np
from jaxtyping import Integer, Real


def front(points: Real[np.ndarray, "points axes"]) -> Integer[np.ndarray, " front"]:
    """Return the indices of points that no other point dominates; of equal points the first.

    Args:
        points: smaller is better; points with NaN are ignored.
    """
    points = np.asarray(points, dtype=float)
    usable = np.flatnonzero(~np.isnan(points).any(axis=1))
    if not len(usable):
        return usable
    _, first = np.unique(points[usable], axis=0, return_index=True)
    kept = usable[np.sort(first)]
    P = points[kept]
    dominated = np.array([_dominated(P, own) for own in P])
    return kept[~dominated]


def _dominated(points: np.ndarray, own: np.ndarray) -> bool:
    return bool(((points <= own).all(axis=1) & (points < own).any(axis=1)).any())


def hypervolume(points: Real[np.ndarray, "points 3"], reference: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> float:
    """Return the hypervolume: the volume dominated by three-axis points, up to a reference (Zitzler & Thiele 1999).

    Args:
        points: smaller is better; points beyond the reference and points with NaN add nothing.
        reference: a point worse than all others.

    For rates and the reference (1, 1, 1) it is a share of the unit cube: 1 if one point has no errors.
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
