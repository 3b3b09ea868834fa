"""Binary probes (difference in means, mass-mean, logistic, centroid cosine), and what they share with the erasers:
checks of training data, binary decisions, and a `Direction` with its provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from probes.covariance import Shrinkage, shrunk_covariance
from probes.direction import Direction, Locus, Provenance
from probes.grid.solver import fit_logistic_batch
from probes.means import difference_in_means, unit

N_NAMED = 5  # rows named in an error
ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


class TrainingSamples(NamedTuple):
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
    """Adds `direction` to a fitted binary estimator, and scikit-learn tags for two classes."""

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
    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]: ...

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
    pairs = zip(*(column.tolist() for column in np.unique(y, return_counts=True)), strict=True)
    named = [f"{label!r} ({n} sample{'s' * (n != 1)})" for label, n in pairs]
    if len(named) > N_NAMED:
        named = [*named[:N_NAMED], "…"]
    return " and ".join(named) if len(named) < 3 else ", ".join(named)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value


class LinearBinaryProbe(BinaryProbe):
    """A binary probe with an affine score of the raw samples."""

    coef_: Float[np.ndarray, "1 features"]  # of the score
    intercept_: Float[np.ndarray, " 1"]

    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]:
        """Score samples as `X @ coef_[0] + intercept_[0]` in float64; positive for `classes_[1]`."""
        return read_samples(self, X) @ self.coef_[0] + self.intercept_[0]

    def _set_weight(self, weight: np.ndarray, threshold: float) -> None:
        self.coef_ = weight[None, :]
        self.intercept_ = np.array([-threshold])

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.coef_[0]


class DifferenceInMeans(LinearBinaryProbe):
    """Difference-in-means classifier with the threshold at the midpoint (Arditi et al. 2024, arXiv 2406.11717).

    The score is the projection onto the unit direction minus the midpoint of the classes' mean projections, in
    residual-stream units. `theta_` is the mean of `classes_[1]` minus that of `classes_[0]`, (d_model,) float64.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> DifferenceInMeans:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        self.theta_: np.ndarray = fit_labelled(self, X, y).theta
        weight = self.theta_ / np.linalg.norm(self.theta_)
        self._set_weight(weight, float(self.class_means_.mean(axis=0) @ weight))
        return self


class MassMean(LinearBinaryProbe):
    """Difference in means multiplied by the inverse within-class covariance (Marks & Tegmark, arXiv 2310.06824).

    The score is `(x - midpoint) @ inverse(S_w) @ theta`, with theta the difference of the class means and S_w the
    pooled covariance within the classes, shrunk towards a multiple of the identity. `direction` is the read direction,
    inverse(S_w) theta normalised; `theta_`, (d_model,) float64, is the write direction, not normalised.

    Args:
        shrinkage: "ledoit_wolf", "oas", "bodnar", or a number from 0 (none) to 1 (the plain difference in means);
            `shrinkage_` is the number used.
    """

    def __init__(self, shrinkage: Shrinkage = "ledoit_wolf") -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> MassMean:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        data = fit_labelled(self, X, y)
        self.theta_: np.ndarray = data.theta
        n_negative, n_positive = self.class_count_
        share = np.where(data.positive, n_negative, -n_positive) / len(data.positive)  # class mean - centre, in theta
        within = data.X - share[:, None] * data.theta
        if np.square(within).sum() <= np.square(len(within) * np.finfo(np.float64).eps * data.X).sum():
            raise ValueError(
                "MassMean needs variation within classes; every sample equals its class mean; use DifferenceInMeans"
            )
        covariance = shrunk_covariance(within, self.shrinkage)
        self.shrinkage_: float = covariance.shrinkage
        weight = covariance.solve(data.theta)
        self._set_weight(weight, float(self.class_means_.mean(axis=0) @ weight))
        return self

    def _learned(self) -> dict[str, object]:
        return {"shrinkage": self.shrinkage_}


class LogisticProbe(LinearBinaryProbe):
    """L2-regularised logistic regression on features standardised over the training samples.

    `coef_` and `intercept_` apply to raw samples; the score is the log-odds before calibration. A constant feature has
    weight 0.

    Args:
        C: inverse strength of the regularisation of standardised weights.
        class_weight: "balanced", None, or a mapping from label to weight.
        tol: error bound of the standardised weights, relative to their norm; see `fit_logistic_batch`.
    """

    def __init__(self, C: float = 1.0, class_weight: ClassWeight = "balanced", tol: float = 1e-8) -> None:
        self.C = C
        self.class_weight = class_weight
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike) -> LogisticProbe:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        data = fit_labelled(self, X, y)
        sample_weight = compute_sample_weight(self.class_weight, self.classes_[data.positive.astype(int)])
        weight, bias = fit_standardised(data.X, data.positive, self.C, sample_weight, self.tol)
        self._set_weight(weight, float(data.centre @ weight) - bias)
        return self


def fit_standardised(
    X: Float[np.ndarray, "samples features"],
    y: Bool[np.ndarray, " samples"],
    C: float,
    sample_weight: Float[np.ndarray, " samples"],
    tol: float,
) -> tuple[Float[np.ndarray, " features"], float]:
    """Fit on centred samples scaled to unit variance; return weight and bias for the unscaled centred samples."""
    every = np.ones((1, len(X)), dtype=bool)
    fit = fit_logistic_batch(X, every, y[None], [C], sample_weight=sample_weight, tol=tol)
    return fit.weight[0, 0], float(fit.intercept[0, 0])


class CentroidCosine(BinaryProbe):
    """Cosine similarity to the two class centroids, averaged over layers (Latent Guard, arXiv 2507.11878).

    The score is `mean over layers l of cos(h_l, positive centroid_l) - cos(h_l, negative centroid_l)`, in [-2, 2]; a
    layer in which a sample is zero adds 0. The probe is not linear: it ignores the length of a sample.

    Args:
        n_layers: X is (n_samples, n_layers * d_model), features laid layer after layer.
    """

    def __init__(self, n_layers: int = 1) -> None:
        self.n_layers = n_layers

    def fit(self, X: ArrayLike, y: ArrayLike) -> CentroidCosine:
        """Fit on X (n_samples, n_layers * d_model) and y (n_samples,) of two labels; the greater one is positive."""
        fit_labelled(self, X, y)
        n_features = self.class_means_.shape[1]
        got = f"got n_features={n_features} with n_layers={self.n_layers}"
        if self.n_layers < 1 or n_features % self.n_layers:
            raise ValueError(f"X must have n_layers * d_model features, {got}")
        if n_features == self.n_layers:
            raise ValueError(f"a cosine needs at least two features per layer, {got}")
        if not self._toward().any():
            raise ValueError("CentroidCosine needs two directions of centroids; the class means differ only in length")
        return self

    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]:
        """Score (n_samples, n_layers * d_model); positive for `classes_[1]`."""
        return np.einsum("nld,ld->nl", self._units(read_samples(self, X)), self._toward()).mean(axis=1)

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None
    ) -> Direction:
        """Return the normalised difference of the centroids' unit vectors; ValueError if there are several layers."""
        if self.n_layers != 1:
            raise ValueError(f"a direction belongs to one layer; this CentroidCosine has n_layers={self.n_layers}")
        return super().direction(name, locus, provenance, positive=positive)

    def _toward(self) -> Float[np.ndarray, "layers layer_features"]:
        """Return the positive centroids' unit vectors minus the negative ones; differences below rounding are 0."""
        negative, positive = self._units(self.class_means_)
        difference = positive - negative
        difference[np.linalg.norm(difference, axis=1) < 1e-12] = 0
        return difference

    def _units(self, X: np.ndarray) -> Float[np.ndarray, "samples layers layer_features"]:
        layers = X.reshape(len(X), self.n_layers, -1)
        norm = np.linalg.norm(layers, axis=-1, keepdims=True)
        return np.divide(layers, norm, out=np.zeros_like(layers), where=norm > 0)

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self._toward()[0]
