"""LEACE: the least change that leaves no linear information about a label."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from probes.covariance import shrunk_covariance
from probes.estimators.labelled import fit_labelled, read_samples
from probes.estimators.linear import DirectionMixin


class LeaceEraser(DirectionMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Least-squares concept erasure of two classes (Belrose et al., arXiv 2306.03819), as the concept-erasure package.

    `x - removed_ (read_ @ (x - mean_))`: on the training samples both classes then have the same mean, so that no
    linear probe fitted there beats chance, and no other affine map that does this moves samples less. Of held-out
    samples it is only an estimate. With fewer samples than features, probes fitted on the same samples before no
    longer read the label in held-out erased ones, but a probe fitted on many new erased samples may: check there.

    `direction` is what is removed, which is parallel to the difference of the class means; what is read is `read_`.
    One label needs no decomposition: its covariance with the samples is `removed_`, up to scale.

    Args:
        shrinkage: shrink the covariance (optimal linear shrinkage, arXiv 1308.2608); needed where n_samples < d_model,
            where held-out samples are moved further without it.

    Attributes:
        removed_, read_: (d_model,) float64, `removed_ @ read_ == 1`; `removed_` points to `classes_[1]`.
        mean_: of all training samples, (d_model,); a sample there is left alone.
        shrinkage_: the weight of the multiple of the identity, as chosen from the data.
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(self, shrinkage: bool = True) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means.
        """
        data = fit_labelled(self, X, y)
        self.mean_ = data.centre
        covariance = shrunk_covariance(data.X) if self.shrinkage else None
        self.shrinkage_ = covariance.shrinkage if covariance else 0.0
        if covariance:
            read = covariance.solve(data.theta)
        else:  # the pseudo-inverse of the covariance, times theta
            read = np.linalg.lstsq(data.X, data.positive - data.positive.mean(), rcond=None)[0]
        self.removed_, self.read_ = data.theta, read / (data.theta @ read)
        return self

    def transform(self, X: ArrayLike) -> Float[np.ndarray, "n_samples d_model"]:
        """Erase from (n_samples, d_model); float32 stays float32."""
        check_is_fitted(self)
        X = read_samples(self, X, keep_float32=True)
        read = (X - self.mean_) @ self.read_
        return (X - read[:, None] * self.removed_).astype(X.dtype)

    def _axis(self) -> Float[np.ndarray, " d_model"]:
        return self.removed_

    def _learned(self) -> dict[str, Any]:
        return {"shrinkage": self.shrinkage_}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
