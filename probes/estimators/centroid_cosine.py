"""Centroid-cosine probe over one or several layers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from probes.direction import Direction, Locus, Provenance
from probes.estimators.labelled import fit_labelled, read_samples
from probes.estimators.linear import BinaryProbe


class CentroidCosine(BinaryProbe):
    """Cosine similarity to the two class centroids, averaged over layers (Latent Guard, arXiv 2507.11878).

    The score is `mean over layers l of cos(h_l, positive centroid_l) - cos(h_l, negative centroid_l)`, in [-2, 2]; a
    layer in which a sample is zero adds 0. The probe is not linear: it ignores the length of a sample.

    Args:
        n_layers: X is (n_samples, n_layers * d_model), features laid layer after layer.

    Attributes:
        class_means_: the centroids, (2, n_layers * d_model) float64.
        classes_, class_count_: (2,).
    """

    def __init__(self, n_layers: int = 1) -> None:
        self.n_layers = n_layers

    def fit(self, X: ArrayLike, y: ArrayLike) -> CentroidCosine:
        """Fit on X (n_samples, n_layers * d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means, centroids with the same
                direction in every layer, or features that cannot be divided into `n_layers`.
        """
        fit_labelled(self, X, y)
        n_features = self.class_means_.shape[1]
        if self.n_layers < 1 or n_features % self.n_layers:
            raise ValueError(
                f"X must have n_layers * d_model features, got n_features={n_features} with n_layers={self.n_layers}"
            )
        if n_features == self.n_layers:
            raise ValueError(
                f"a cosine needs at least two features per layer, got n_features={n_features} "
                f"with n_layers={self.n_layers}"
            )
        if not self._toward().any():
            raise ValueError(
                "CentroidCosine needs centroids with different directions; the class means differ only in length"
            )
        return self

    def decision_function(self, X: ArrayLike) -> Float[np.ndarray, " samples"]:
        """Score (n_samples, n_layers * d_model); positive for `classes_[1]`."""
        check_is_fitted(self)
        cosines = np.einsum("nld,ld->nl", _units(self._layers(read_samples(self, X))), self._toward())
        return cosines.mean(axis=1)

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None
    ) -> Direction:
        """Return the normalised difference of the centroids' unit vectors; only for one layer.

        Raises:
            ValueError: the probe reads several layers, or the positive class is not named (see `DirectionMixin`).
        """
        if self.n_layers != 1:
            raise ValueError(f"a direction belongs to one layer; this CentroidCosine has n_layers={self.n_layers}")
        return super().direction(name, locus, provenance, positive=positive)

    def _toward(self) -> Float[np.ndarray, "layers layer_features"]:
        """Return the positive centroids' unit vectors minus the negative ones; differences below rounding are 0."""
        negative, positive = (_units(layers) for layers in self._layers(self.class_means_))
        difference = positive - negative
        difference[np.linalg.norm(difference, axis=1) < 1e-12] = 0
        return difference

    def _layers(self, X: np.ndarray) -> Float[np.ndarray, "samples layers layer_features"]:
        return X.reshape(len(X), self.n_layers, -1)

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self._toward()[0]


def _units(X: Float[np.ndarray, "*rows features"]) -> Float[np.ndarray, "*rows features"]:
    """Scale to unit norm along the last axis; zero vectors stay zero."""
    norm = np.linalg.norm(X, axis=-1, keepdims=True)
    return np.divide(X, norm, out=np.zeros_like(X), where=norm > 0)
