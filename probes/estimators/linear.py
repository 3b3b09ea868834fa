"""What the probes share: a decision between two classes, and a `Direction` with its provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from probes.direction import Direction, Locus
from probes.estimators.labelled import read_samples
from probes.means import unit


class DirectionMixin:
    """Gives a fitted estimator of two classes a `direction` and tags that say that it wants two."""

    classes_: np.ndarray  # (2,) sorted as by np.unique; classes_[1] is the positive = declining one
    class_count_: np.ndarray  # (2,) training samples of each class
    class_means_: np.ndarray  # (2, d_model) float64

    def direction(self, name: str, locus: Locus, provenance: Mapping[str, Any] | None = None) -> Direction:
        """Return the unit vector towards the positive class with both classes' mean training projection.

        Args:
            name: what to call it, unique in its file.
            locus: where the samples were taken.
            provenance: what the estimator cannot know (model, prompts, …); stands beside its own class, parameters,
                labels, counts and what it learned.
        """
        check_is_fitted(self)
        return self._direction_along(self._axis(), name, locus, provenance)

    def _direction_along(
        self, axis: np.ndarray, name: str, locus: Locus, provenance: Mapping[str, Any] | None, **more: Any
    ) -> Direction:
        vector = unit(axis)
        mean_negative, mean_positive = (self.class_means_ @ vector.astype(np.float64)).tolist()
        record = self._provenance() | more | dict(provenance or {})
        return Direction(name, vector, locus, mean_positive, mean_negative, record)

    @abstractmethod
    def _axis(self) -> Float[np.ndarray, " d_model"]:
        """Return a vector of any length towards the positive class."""

    def _learned(self) -> dict[str, Any]:
        """Return what was learned besides the direction and is worth keeping with it."""
        return {}

    def _provenance(self) -> dict[str, Any]:
        negative, positive = self.classes_.tolist()
        n_negative, n_positive = self.class_count_.tolist()
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
    """A score whose sign decides between two classes."""

    @abstractmethod
    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " n_samples"]:
        """Score (n_samples, d_model); positive for `classes_[1]`."""

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return each sample's class, (n_samples,)."""
        score = self.decision_function(X)
        return self.classes_[(score > 0).astype(int)]


class LinearBinaryProbe(BinaryProbe):
    """A probe whose score is affine in the raw samples."""

    coef_: np.ndarray  # (1, d_model) float64
    intercept_: np.ndarray  # (1,) float64

    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " n_samples"]:
        """Score (n_samples, d_model) as `X @ coef_[0] + intercept_[0]` in float64; positive for `classes_[1]`."""
        check_is_fitted(self)
        return read_samples(self, X) @ self.coef_[0] + self.intercept_[0]

    def _set_weight(self, weight: np.ndarray, threshold: float) -> None:
        """Learn the score `X @ weight - threshold`."""
        self.coef_ = weight[None, :]
        self.intercept_ = np.array([-threshold])

    def _axis(self) -> Float[np.ndarray, " d_model"]:
        return self.coef_[0]


def _plain(value: Any) -> Any:
    """Return a parameter as what JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
