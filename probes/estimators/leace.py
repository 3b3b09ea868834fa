"""LEACE (least-squares concept erasure) as an estimator, fitted with the concept-erasure package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from probes.estimators.labelled import TrainingSamples, fit_labelled, read_samples
from probes.estimators.linear import DirectionMixin

if TYPE_CHECKING:
    from concept_erasure import LeaceFitter


class LeaceEraser(DirectionMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Least-squares concept erasure of two classes, by the package concept-erasure (Belrose et al., arXiv 2306.03819).

    The map is `x - removed_ (read_ @ (x - mean_))`. After it, both classes have the same mean on the training samples,
    so no linear probe fitted on them is better than chance; of all affine maps with this property it changes samples
    least. On held-out samples it is an estimate: with fewer samples than features, probes fitted earlier on the same
    samples cannot read the label from erased held-out samples, but a probe fitted on many new erased samples may.

    `direction` is the removed direction, parallel to the difference of the class means; `read_` is the read direction.
    The fit takes O(d_model^3).

    Args:
        shrinkage: shrink the covariance (optimal linear shrinkage, arXiv 1308.2608); needed if n_samples < d_model,
            because held-out samples change more without it.

    Attributes:
        removed_, read_: (d_model,) float64, `removed_ @ read_ == 1`; `removed_` points to `classes_[1]`.
        mean_: mean of all training samples, (d_model,); a sample at the mean does not change.
        shrinkage_: the weight of the multiple of the identity, chosen from the data.
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(self, shrinkage: bool = True) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> LeaceEraser:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means.
        """
        data = fit_labelled(self, X, y)
        self.mean_ = data.centre
        self.removed_, self.read_, self.shrinkage_ = _leace(data, self.shrinkage)
        return self

    def transform(self, X: ArrayLike) -> Float[np.ndarray, "samples features"]:
        """Erase the label from samples (n_samples, d_model); float32 stays float32."""
        check_is_fitted(self)
        X = read_samples(self, X, keep_float32=True)
        read = (X - self.mean_) @ self.read_
        return (X - read[:, None] * self.removed_).astype(X.dtype)

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.removed_

    def _learned(self) -> dict[str, object]:
        return {"shrinkage": self.shrinkage_}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _leace(data: TrainingSamples, shrinkage: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the removed direction, the read direction, and the shrinkage used.

    The label has unit variance, and the package's threshold on the correlation is lowered: with its default of 0.01 it
    would silently erase nothing for a weak concept or a rare class.
    """
    import torch
    from concept_erasure import LeaceFitter

    label = data.positive - data.positive.mean()
    X, z = torch.from_numpy(data.X), torch.from_numpy(label / label.std())
    fitter = LeaceFitter.fit(X, z, shrinkage=shrinkage, svd_tol=1e-12)
    left, right = fitter.eraser.proj_left[:, 0].numpy(), fitter.eraser.proj_right[0].numpy()
    sign = np.sign(left @ data.theta)
    return sign * left, sign * right, _shrinkage_used(fitter) if shrinkage else 0.0


def _shrinkage_used(fitter: LeaceFitter) -> float:
    """Return a of (1 - a) S + a (tr S / d) I, which the package does not report."""
    S, shrunk = (fitter.sigma_xx_ / fitter.n).clone(), fitter.sigma_xx
    for matrix in (S, shrunk):
        matrix.diagonal().sub_(matrix.diagonal().mean())
    return 1 - float((S * shrunk).sum() / (S * S).sum()) if S.any() else 1.0
