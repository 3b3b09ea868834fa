"""Checks an estimator's training data: finite samples of two classes with different means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from probes.means import difference_in_means

N_NAMED = 5  # rows named in an error


@dataclass(frozen=True)
class TrainingSamples:
    """Training samples, centred in float64 so that a large common offset does not reduce accuracy."""

    X: Float[np.ndarray, "samples features"]  # minus `centre`
    centre: Float[np.ndarray, " features"]  # the mean of all samples
    positive: Bool[np.ndarray, " samples"]  # of class `classes_[1]`
    theta: Float[np.ndarray, " features"]  # mean of the positive class minus mean of the negative


def fit_labelled(estimator: BaseEstimator, X: ArrayLike, y: ArrayLike) -> TrainingSamples:
    """Check training data; set the estimator's `classes_`, `class_count_`, `class_means_` and `n_features_in_`.

    Raises:
        ValueError: NaN or inf, one class only or more than two, constant samples, equal class means.
    """
    samples, labels = validate_data(estimator, X, y, dtype=np.float64, ensure_all_finite=False)
    _check_finite(samples)
    name = type(estimator).__name__
    classes = _two_classes(name, labels)
    positive = labels == classes[1]
    centre = samples.mean(axis=0)
    centred = samples - centre
    theta = difference_in_means(centred, positive)
    if not np.ptp(samples, axis=0).any():
        raise ValueError(f"{name} needs samples that differ; all {len(samples)} rows of X are the same")
    if same_mean(centred, theta):
        raise ValueError(f"{name} needs classes that differ in their mean; {_counts(labels)} have the same mean")
    estimator.classes_ = classes
    estimator.class_count_ = np.array([(~positive).sum(), positive.sum()])
    estimator.class_means_ = np.stack([centre + centred[side].mean(axis=0) for side in (~positive, positive)])
    return TrainingSamples(centred, centre, positive, theta)


def read_samples(
    estimator: BaseEstimator, X: ArrayLike, *, keep_float32: bool = False
) -> Float[np.ndarray, "samples features"]:
    """Check samples for a fitted estimator; return them in float64, or in float32 if `keep_float32`.

    Raises:
        ValueError: NaN or inf, or another number of features than in fit.
    """
    dtype = [np.float64, np.float32] if keep_float32 else np.float64
    samples = validate_data(estimator, X, reset=False, dtype=dtype, ensure_all_finite=False)
    _check_finite(samples)
    return samples


def same_mean(X: Float[np.ndarray, "samples features"], theta: Float[np.ndarray, " features"]) -> bool:
    """Return whether a difference in means of centred samples is only rounding."""
    rounding = len(X) * np.finfo(np.float64).eps * np.abs(X).max(axis=0)
    return bool((np.abs(theta) <= rounding).all())


def _check_finite(X: np.ndarray) -> None:
    rows = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(rows):
        named = ", ".join(map(str, rows[:N_NAMED])) + (", …" if len(rows) > N_NAMED else "")
        raise ValueError(f"X has NaN or inf in {len(rows)} of {len(X)} rows, at index {named}")


def _two_classes(name: str, y: np.ndarray) -> np.ndarray:
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) == 1:
        raise ValueError(f"{name} needs two classes, got one class only: {_counts(y)}")
    if len(classes) > 2:
        raise ValueError(f"Only binary classification is supported. The type of the target is multiclass: {_counts(y)}")
    return classes


def _counts(y: np.ndarray) -> str:
    """Return the classes with their counts, as in `'benign' (3 samples) and 'harmful' (1 sample)`."""
    classes, counts = np.unique(y, return_counts=True)
    named = [
        f"{label!r} ({n} sample{'s' * (n != 1)})" for label, n in zip(classes.tolist(), counts.tolist(), strict=True)
    ]
    if len(named) > N_NAMED:
        named = [*named[:N_NAMED], "…"]
    return " and ".join(named) if len(named) < 3 else ", ".join(named)
