"""Binary probes: difference in means, mass-mean, logistic, centroid cosine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from sklearn.utils.class_weight import compute_sample_weight

from probes.covariance import Shrinkage, shrunk_covariance
from probes.direction import Direction, Locus, Provenance
from probes.estimators.base import BinaryProbe, fit_labelled, read_samples
from probes.grid.solver import fit_logistic_batch

ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


class LinearBinaryProbe(BinaryProbe):
    """A binary probe with an affine score of the raw samples."""

    coef_: Float[np.ndarray, "1 features"]
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
    residual-stream units. There are no hyperparameters.

    Attributes:
        theta_: mean of `classes_[1]` minus mean of `classes_[0]`, (d_model,) float64, not normalised.
        coef_, intercept_: of the score, (1, d_model) with unit norm and (1,).
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> DifferenceInMeans:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        self.theta_ = fit_labelled(self, X, y).theta
        weight = self.theta_ / np.linalg.norm(self.theta_)
        self._set_weight(weight, float(self.class_means_.mean(axis=0) @ weight))
        return self


class MassMean(LinearBinaryProbe):
    """Difference in means multiplied by the inverse within-class covariance (Marks & Tegmark, arXiv 2310.06824).

    The score is `(x - midpoint) @ inverse(S_w) @ theta`, with theta the difference of the class means and S_w the
    pooled covariance within the classes, shrunk towards a multiple of the identity. `direction` is the read direction,
    inverse(S_w) theta normalised; `theta_` is the write direction. With fewer samples than features no matrix of size
    d_model × d_model is built.

    Args:
        shrinkage: "ledoit_wolf", "oas", "bodnar", or a number from 0 (none) to 1 (the plain difference in means).

    Attributes:
        theta_: mean of `classes_[1]` minus mean of `classes_[0]`, (d_model,) float64, not normalised.
        shrinkage_: the shrinkage used.
        coef_, intercept_: of the score, (1, d_model) and (1,).
    """

    def __init__(self, shrinkage: Shrinkage = "ledoit_wolf") -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> MassMean:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        data = fit_labelled(self, X, y)
        self.theta_ = data.theta
        n_negative, n_positive = self.class_count_
        share = np.where(data.positive, n_negative, -n_positive) / len(data.positive)  # class mean - centre, in theta
        within = data.X - share[:, None] * data.theta
        if np.square(within).sum() <= np.square(len(within) * np.finfo(np.float64).eps * data.X).sum():
            raise ValueError(
                "MassMean needs variation within classes; every sample equals its class mean; use DifferenceInMeans"
            )
        covariance = shrunk_covariance(within, self.shrinkage)
        self.shrinkage_ = covariance.shrinkage
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

    Attributes:
        coef_, intercept_: of the score, (1, d_model) and (1,) float64.
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

    Attributes:
        class_means_: the centroids, (2, n_layers * d_model) float64.
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
            raise ValueError(
                "CentroidCosine needs centroids with different directions; the class means differ only in length"
            )
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
