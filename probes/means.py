"""Difference in means, plain and within strata (Arditi et al. 2024, arXiv 2406.11717)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

ALIKE = 1e-6  # of the largest activation: class means that differ by less differ by rounding


def difference_in_means(
    X: Float[np.ndarray, "n_samples d_model"],
    y: Bool[np.ndarray, " n_samples"],
    strata: Sequence[str] | np.ndarray | None = None,
) -> Float[np.ndarray, " d_model"]:
    """Return mean(X[y]) - mean(X[~y]), accumulated in float64; not normalised.

    With `strata`, the difference is taken within each stratum that holds both classes and averaged with weights
    n+ n- / (n+ + n-), the inverse variance of a difference of means; so what distinguishes the strata cancels.
    Where no stratum holds both classes, the plain difference is returned.

    Raises:
        ValueError: a class is empty.
    """
    y = np.asarray(y, dtype=bool)
    if y.all() or not y.any():
        raise ValueError(f"difference in means needs both classes; got {int(y.sum())} positive of {len(y)}")
    names = np.asarray(["" for _ in y] if strata is None else list(strata))
    total, weight = np.zeros(X.shape[1]), 0.0
    for name in usable_strata(y, names):
        inside = names == name
        n_positive, n_negative = int((y & inside).sum()), int((~y & inside).sum())
        w = n_positive * n_negative / (n_positive + n_negative)
        total += w * (_mean(X[y & inside]) - _mean(X[~y & inside]))
        weight += w
    return total / weight if weight else _mean(X[y]) - _mean(X[~y])


def same_means(X: Float[np.ndarray, "n_samples d_model"], y: Bool[np.ndarray, " n_samples"]) -> bool:
    """Say whether the classes' means differ by no more than rounding, as at a template token of the first layer."""
    theta = difference_in_means(X, y)
    return bool((np.abs(theta) <= ALIKE * np.abs(X).max(axis=0)).all())


def usable_strata(y: Bool[np.ndarray, " n_samples"], strata: np.ndarray) -> list[str]:
    """List the strata that hold both classes."""
    return [name for name in sorted(set(strata.tolist())) if 0 < y[strata == name].sum() < (strata == name).sum()]


def unit(vector: Float[np.ndarray, " d_model"]) -> Float[np.ndarray, " d_model"]:
    """Scale to unit norm, as float32.

    Raises:
        ValueError: the vector is zero or not finite.
    """
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0:
        raise ValueError("cannot normalise a zero or non-finite vector: the two classes have the same mean")
    return (vector / norm).astype(np.float32)


def _mean(X: np.ndarray) -> np.ndarray:
    return X.mean(axis=0, dtype=np.float64)
