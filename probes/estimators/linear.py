"""Base classes of the estimators: binary decisions, and a `Direction` with its provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Integer, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from probes.direction import Direction, Locus, Provenance
from probes.estimators.labelled import read_samples
from probes.means import unit


class DirectionMixin:
    """Adds `direction` to a fitted binary estimator, and scikit-learn tags for two classes."""

    classes_: Shaped[np.ndarray, " 2"]  # sorted as by np.unique; scores are positive for classes_[1]
    class_count_: Integer[np.ndarray, " 2"]  # training samples of each class
    class_means_: Float[np.ndarray, "2 features"]

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None
    ) -> Direction:
        """Return the unit vector towards the positive class, with the mean training projection of both classes.

        Args:
            name: the direction's name, unique in its file.
            locus: the locus of the samples.
            provenance: further information (model, prompts, …), added to the estimator's class, parameters, labels,
                counts and learned values.
            positive: the label of the positive class. Only booleans, and 0 and 1, need none: the order of other labels
                (the alphabet) does not say which class declines.

        Raises:
            ValueError: `positive` is missing, or not a label of the fit.
        """
        check_is_fitted(self)
        return self._direction_along(self._axis(), name, locus, provenance, positive)

    def _direction_along(
        self, axis: np.ndarray, name: str, locus: Locus, provenance: Provenance | None, positive: object, **more: object
    ) -> Direction:
        last = self._positive_is_last(positive)
        vector = unit(axis if last else -axis)
        means = (self.class_means_ @ vector.astype(np.float64)).tolist()
        mean_negative, mean_positive = means if last else means[::-1]
        record = self._provenance(last) | more | dict(provenance or {})
        return Direction(name, vector, locus, mean_positive, mean_negative, record)

    def _positive_is_last(self, positive: object) -> bool:
        """Return whether the positive class is `classes_[1]`."""
        labels = self.classes_.tolist()
        if positive is None and set(labels) == {0, 1}:
            return True
        if positive not in labels:
            given = "none was given" if positive is None else f"got {positive!r}"
            either = " or ".join(f"positive={label!r}" for label in labels)
            raise ValueError(f"name the direction's positive class, {either}; {given}")
        return bool(labels[1] == positive)

    @abstractmethod
    def _axis(self) -> Float[np.ndarray, " features"]:
        """Return a vector of any length towards the positive class."""

    def _learned(self) -> dict[str, object]:
        """Return learned values, besides the direction, for the provenance."""
        return {}

    def _provenance(self, last: bool) -> dict[str, object]:
        order = slice(None) if last else slice(None, None, -1)
        negative, positive = self.classes_.tolist()[order]
        n_negative, n_positive = self.class_count_.tolist()[order]
        return {
            "estimator": type(self).__name__,
            "parameters": {key: _plain(value) for key, value in self.get_params().items()},  # type: ignore[attr-defined]
            "positive_class": positive,
            "negative_class": negative,
            "n_positive": n_positive,
            "n_negative": n_negative,
        } | self._learned()

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
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int)]


class LinearBinaryProbe(BinaryProbe):
    """A binary probe with an affine score of the raw samples."""

    coef_: Float[np.ndarray, "1 features"]
    intercept_: Float[np.ndarray, " 1"]

    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]:
        """Score samples as `X @ coef_[0] + intercept_[0]` in float64; positive for `classes_[1]`."""
        check_is_fitted(self)
        return read_samples(self, X) @ self.coef_[0] + self.intercept_[0]

    def _set_weight(self, weight: np.ndarray, threshold: float) -> None:
        """Set the score to `X @ weight - threshold`."""
        self.coef_ = weight[None, :]
        self.intercept_ = np.array([-threshold])

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.coef_[0]


def _plain(value: object) -> object:
    """Return a parameter as a JSON value."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
