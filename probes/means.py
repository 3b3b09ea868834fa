"""Difference in means: plain, within strata, and for many labellings at once (Arditi et al. 2024, arXiv 2406.11717)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped

SAME_MEAN = 1e-6  # relative to the largest activation; smaller differences of class means are rounding


def difference_in_means(
    X: Real[np.ndarray, "samples features"],
    y: Bool[np.ndarray, " samples"] | Integer[np.ndarray, " samples"],
    strata: Sequence[str] | Shaped[np.ndarray, " samples"] | None = None,
) -> Float[np.ndarray, " features"]:
    """Return mean(X[y]) - mean(X[~y]), accumulated in float64; not normalised. Raises ValueError if a class is empty.

    With `strata`, the difference is taken within each stratum with both classes and averaged with weights
    n+ n- / (n+ + n-), the inverse variance of a difference of means, so that differences between strata cancel.
    If no stratum has both classes, the plain difference is returned.
    """
    y = np.asarray(y, dtype=bool)
    if y.all() or not y.any():
        raise ValueError(f"difference in means needs both classes; got {int(y.sum())} positive of {len(y)}")
    weights = mean_weights(y, ~y) if strata is None else _stratified_weights(y, np.asarray(list(strata)))
    used = weights != 0  # leaves out strata with one class
    return weighted_sums(X if used.all() else X[used], weights[used])


def differences_in_means(
    X: Real[np.ndarray, "samples features"], ys: Bool[np.ndarray, "labellings samples"]
) -> Float[np.ndarray, "labellings features"]:
    """Return the difference in means of every labelling, in one matrix product."""
    return weighted_sums(X, mean_weights(ys, ~ys))


def mean_weights(
    positive: Bool[np.ndarray, "*labellings samples"], negative: Bool[np.ndarray, "*labellings samples"]
) -> Float[np.ndarray, "*labellings samples"]:
    """Return sample weights whose weighted sum is a difference in means: 1/n+, -1/n-, and 0 for unused samples."""
    n_positive, n_negative = (side.sum(axis=-1, keepdims=True) for side in (positive, negative))
    return np.where(positive, 1 / n_positive, np.where(negative, -1 / n_negative, 0.0))


def weighted_sums(
    X: Real[np.ndarray, "samples features"], weights: Float[np.ndarray, "*labellings samples"]
) -> Float[np.ndarray, "*labellings features"]:
    """Return weights @ X in float64 for weights that sum to zero; X is centred first, so an offset costs no digits."""
    return weights @ (X - X.mean(axis=0, dtype=np.float64))


def same_means(X: Real[np.ndarray, "samples features"], y: Bool[np.ndarray, " samples"]) -> bool:
    """Return whether the class means are equal up to rounding, as at a template token of the first layer."""
    theta = difference_in_means(X, y)
    return bool((np.abs(theta) <= SAME_MEAN * np.abs(X).max(axis=0)).all())


def usable_strata(y: Bool[np.ndarray, " samples"], strata: Shaped[np.ndarray, " samples"]) -> list[str]:
    """Return the strata with both classes."""
    return [name for name in sorted(set(strata.tolist())) if 0 < y[strata == name].sum() < (strata == name).sum()]


def unit(vector: Float[np.ndarray, " features"]) -> Float[np.ndarray, " features"]:
    """Scale to unit norm, as float32; raises ValueError if the vector is zero or not finite."""
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0:
        raise ValueError("cannot normalise a zero or non-finite vector: the two classes have the same mean")
    return (vector / norm).astype(np.float32)


def _stratified_weights(y: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Return the weights of the averaged within-strata differences in means; plain weights if no stratum has both."""
    inside = np.array([strata == name for name in usable_strata(y, strata)])
    if not len(inside):
        return mean_weights(y, ~y)
    n_positive, n_negative = (inside & y).sum(axis=1), (inside & ~y).sum(axis=1)
    share = n_positive * n_negative / (n_positive + n_negative)
    return (share / share.sum()) @ mean_weights(inside & y, inside & ~y)
