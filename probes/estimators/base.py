"""What all estimators share: checks of training data, binary decisions, and a `Direction` with its provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from probes.direction import Direction, Locus, Provenance
from probes.means import difference_in_means, unit

N_NAMED = 5  # rows named in an error


@dataclass(frozen=True)
class TrainingSamples:
    """Training samples, centred in float64 so that a large common offset does not reduce accuracy."""

    X: Float[np.ndarray, "samples features"]  # minus `centre`
    centre: Float[np.ndarray, " features"]  # the mean of all samples
    positive: Bool[np.ndarray, " samples"]  # of class `classes_[1]`
    theta: Float[np.ndarray, " features"]  # mean of the positive class minus mean of the negative


def fit_labelled(estimator: BaseEstimator, X: ArrayLike, y: ArrayLike) -> TrainingSamples:
    """Check training data; set the estimator's `classes_`, `class_count_`, `class_means_` and `n_features_in_`."""
    samples, labels = validate_data(estimator, X, y, dtype=np.float64, ensure_all_finite=False)
    _check_finite(samples)
    check_classification_targets(labels)
    name, classes = type(estimator).__name__, np.unique(labels)
    if len(classes) == 1:
        raise ValueError(f"{name} needs two classes, got one class only: {_counts(labels)}")
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is multiclass: {_counts(labels)}"
        )
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
    """Check samples for a fitted estimator; return them in float64, or in float32 if `keep_float32`."""
    check_is_fitted(estimator)
    dtype = [np.float64, np.float32] if keep_float32 else np.float64
    samples = validate_data(estimator, X, reset=False, dtype=dtype, ensure_all_finite=False)
    _check_finite(samples)
    return samples


def same_mean(X: Float[np.ndarray, "samples features"], theta: Float[np.ndarray, " features"]) -> bool:
    """Return whether a difference in means of centred samples is only rounding."""
    rounding = len(X) * np.finfo(np.float64).eps * np.abs(X).max(axis=0)
    return bool((np.abs(theta) <= rounding).all())


class DirectionMixin:
    """Adds `direction` to a fitted binary estimator, and scikit-learn tags for two classes.

    Every estimator has `classes_`, `class_count_` and `class_means_`: (2,), (2,) and (2, d_model).
    """

    classes_: Shaped[np.ndarray, " 2"]  # sorted as by np.unique; scores are positive for classes_[1]
    class_count_: Integer[np.ndarray, " 2"]  # training samples of each class
    class_means_: Float[np.ndarray, "2 features"]

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None
    ) -> Direction:
        """Return the unit vector towards the positive class, with the mean training projection of both classes.

        Args:
            name, locus: of the direction, unique in its file, and of its samples.
            provenance: further information, besides the estimator, its parameters, labels, counts and learned values.
            positive: the label of the positive class. Only booleans, and 0 and 1, need none: the order of other labels
                (the alphabet) does not say which class declines. ValueError if it is missing or no label.
        """
        check_is_fitted(self)
        return self._direction_along(self._axis(), name, locus, provenance, positive)

    def _direction_along(
        self, axis: np.ndarray, name: str, locus: Locus, provenance: Provenance | None, positive: object, **more: object
    ) -> Direction:
        labels, counts = self.classes_.tolist(), self.class_count_.tolist()
        if positive is None and set(labels) == {0, 1}:
            positive = labels[1]
        if positive not in labels:
            given = "none was given" if positive is None else f"got {positive!r}"
            either = " or ".join(f"positive={label!r}" for label in labels)
            raise ValueError(f"name the direction's positive class, {either}; {given}")
        on = labels.index(positive)
        vector = unit(axis if on else -axis)
        means = (self.class_means_ @ vector.astype(np.float64)).tolist()
        record = {
            "estimator": type(self).__name__,
            "parameters": {key: _plain(value) for key, value in self.get_params().items()},  # type: ignore[attr-defined]
            "positive_class": labels[on],
            "negative_class": labels[1 - on],
            "n_positive": counts[on],
            "n_negative": counts[1 - on],
        }
        return Direction(
            name, vector, locus, means[on], means[1 - on], record | self._learned() | more | dict(provenance or {})
        )

    @abstractmethod
    def _axis(self) -> Float[np.ndarray, " features"]:
        """Return a vector of any length towards the positive class."""

    def _learned(self) -> dict[str, object]:
        """Return learned values, besides the direction, for the provenance."""
        return {}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.classifier_tags = tags.classifier_tags or ClassifierTags()
        tags.classifier_tags.multi_class = False
        return tags


class BinaryProbe(DirectionMixin, ClassifierMixin, BaseEstimator):
    """A binary classifier; the sign of its score is the decision."""

    @abstractmethod
    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]:
        """Score samples; positive for `classes_[1]`."""

    def predict(self, X: ArrayLike) -> Shaped[np.ndarray, " samples"]:
        """Return each sample's class."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]


def _check_finite(X: np.ndarray) -> None:
    rows = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(rows):
        named = ", ".join(map(str, rows[:N_NAMED])) + (", …" if len(rows) > N_NAMED else "")
        raise ValueError(f"X has NaN or inf in {len(rows)} of {len(X)} rows, at index {named}")


def _counts(y: np.ndarray) -> str:
    """Return the classes with their counts, as in `'benign' (3 samples) and 'harmful' (1 sample)`."""
    pairs = zip(*(column.tolist() for column in np.unique(y, return_counts=True)), strict=True)
    named = [f"{label!r} ({n} sample{'s' * (n != 1)})" for label, n in pairs]
    if len(named) > N_NAMED:
        named = [*named[:N_NAMED], "…"]
    return " and ".join(named) if len(named) < 3 else ", ".join(named)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
