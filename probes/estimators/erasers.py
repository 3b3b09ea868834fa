"""Erasers: LEACE by the concept-erasure package, and INLP with counterfactuals."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from probes.covariance import bodnar
from probes.direction import Direction, Locus, Provenance, nullspace_directions, project_out
from probes.estimators.probes import (
    ClassWeight,
    DirectionMixin,
    fit_labelled,
    fit_standardised,
    read_samples,
    same_mean,
)
from probes.means import difference_in_means


class LabelEraser(DirectionMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer that removes what reads two classes."""

    def transform(self, X: ArrayLike) -> Float[np.ndarray, "samples features"]:
        """Erase the label from samples (n_samples, d_model); float32 stays float32."""
        X = read_samples(self, X, keep_float32=True)
        return self._erased(X.astype(np.float64)).astype(X.dtype)

    @abstractmethod
    def _erased(self, X: Float[np.ndarray, "samples features"]) -> Float[np.ndarray, "samples features"]: ...

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LeaceEraser(LabelEraser):
    """Least-squares concept erasure of two classes, by the package concept-erasure (Belrose et al., arXiv 2306.03819).

    The map is `x - removed_ (read_ @ (x - mean_))`. After it, both classes have the same mean on the training samples,
    so no linear probe fitted on them is better than chance; of all affine maps with this property it changes samples
    least. With fewer samples than features, a probe fitted on many new erased samples may still read the label.

    `direction` is the removed direction, parallel to the difference of the class means. The fit takes O(d_model^3).

    Args:
        shrinkage: shrink the covariance (optimal linear shrinkage, arXiv 1308.2608); needed if n_samples < d_model,
            because held-out samples change more without it.

    Attributes:
        removed_, read_: (d_model,) float64, `removed_ @ read_ == 1`; `removed_` points to `classes_[1]`.
        mean_: mean of all training samples, (d_model,).
        shrinkage_: the weight of the multiple of the identity, chosen from the data.
    """

    def __init__(self, shrinkage: bool = True) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> LeaceEraser:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        The label has unit variance, and the package's threshold on the correlation is lowered: with its default of 0.01
        it would silently erase nothing for a weak concept or a rare class.
        """
        import torch
        from concept_erasure import LeaceFitter

        data = fit_labelled(self, X, y)
        label = data.positive - data.positive.mean()
        samples, z = torch.from_numpy(data.X), torch.from_numpy(label / label.std())
        eraser = LeaceFitter.fit(samples, z, shrinkage=self.shrinkage, svd_tol=1e-12).eraser
        removed, read = eraser.proj_left[:, 0].numpy(), eraser.proj_right[0].numpy()
        sign = np.sign(removed @ data.theta)
        self.mean_: np.ndarray = data.centre
        self.removed_: np.ndarray = sign * removed
        self.read_: np.ndarray = sign * read
        self.shrinkage_: float = bodnar(data.X) if self.shrinkage else 0.0  # which the package does not report
        return self

    def _erased(self, X: Float[np.ndarray, "samples features"]) -> Float[np.ndarray, "samples features"]:
        return X - np.outer((X - self.mean_) @ self.read_, self.removed_)

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.removed_

    def _learned(self) -> dict[str, object]:
        return {"shrinkage": self.shrinkage_}


class Inlp(LabelEraser):
    """Repeat: fit a logistic probe and project its direction out (Ravfogel et al. 2020, arXiv 2004.07667).

    Each probe decides by the signed distance `directions_[i] @ x - thresholds_[i]`. The directions are orthonormal, so
    the i-th probe has the same score on projected and on original samples.

    Args:
        n_directions: the number of directions; fewer are kept if the class means become equal (`len(directions_)`).
        C, class_weight, tol: parameters of each `LogisticProbe`.

    Attributes:
        directions_: (k, d_model) float64, orthonormal, in order of fitting, each towards `classes_[1]`.
        thresholds_: (k,), the decision threshold along each direction.
    """

    def __init__(
        self, n_directions: int = 4, C: float = 1.0, class_weight: ClassWeight = "balanced", tol: float = 1e-8
    ) -> None:
        self.n_directions = n_directions
        self.C = C
        self.class_weight = class_weight
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike) -> Inlp:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive."""
        if self.n_directions < 1:
            raise ValueError(f"n_directions must be at least 1, got {self.n_directions}")
        data = fit_labelled(self, X, y)
        sample_weight = compute_sample_weight(self.class_weight, self.classes_[data.positive.astype(int)])
        rounding = 1e-10 * np.abs(data.X).max(axis=0)
        fits: list[tuple[Float[np.ndarray, " features"], float]] = []

        def fit(earlier: Float[np.ndarray, "1 earlier features"]) -> Float[np.ndarray, "1 features"]:
            left = project_out(data.X, earlier[0])
            left[:, np.abs(left).max(axis=0) <= rounding] = 0  # else rounding would be scaled up to unit variance
            if len(fits) < earlier.shape[1] or same_mean(left, difference_in_means(left, data.positive)):
                return np.zeros((1, left.shape[1]))
            fits.append(fit_standardised(left, data.positive, self.C, sample_weight, self.tol))
            return fits[-1][0][None]

        directions = nullspace_directions(fit, 1, self.n_directions, data.X.shape[1])[0, : len(fits)]
        offsets = [bias / (direction @ weight) for direction, (weight, bias) in zip(directions, fits, strict=True)]
        self.directions_, self.thresholds_ = directions, directions @ data.centre - offsets
        return self

    def distances(self, X: ArrayLike) -> Float[np.ndarray, "samples k"]:
        """Return each sample's signed distance to each probe's boundary; positive for `classes_[1]`."""
        return read_samples(self, X) @ self.directions_.T - self.thresholds_

    def counterfactual(
        self, X: ArrayLike, alpha: float = 1.0, towards: object = None
    ) -> Float[np.ndarray, "samples features"]:
        """Move samples (n_samples, d_model) across every probe's boundary, to alpha times their distance.

        Without `towards`, each sample changes sides (counterfactual flip, arXiv 2606.13720): distances are multiplied
        by -alpha, so alpha = 1 mirrors samples and alpha = 0 puts them on the boundaries. With a label of `classes_`,
        all samples move to that side of all boundaries (AlterRep, Ravfogel et al. 2021, arXiv 2105.06965).

        Raises:
            ValueError: a negative alpha, or `towards` is not a label.
        """
        if alpha < 0:
            raise ValueError(f"alpha must be 0 or greater (a negative alpha does not change sides), got {alpha}")
        distance = self.distances(X)
        labels = self.classes_.tolist()
        if towards is None:
            wanted = -alpha * distance
        elif towards in labels:
            wanted = alpha * np.abs(distance) * (1 if labels.index(towards) else -1)
        else:
            raise ValueError(f"towards must be one of {', '.join(map(repr, labels))}, got {towards!r}")
        X = read_samples(self, X, keep_float32=True)
        return (X + (wanted - distance) @ self.directions_).astype(X.dtype)

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None, index: int = 0
    ) -> Direction:
        """Return one of `directions_`, by default the first; `positive` as in `DirectionMixin.direction`."""
        check_is_fitted(self)
        return self._direction_along(self.directions_[index], name, locus, provenance, positive, index=index)

    def _erased(self, X: Float[np.ndarray, "samples features"]) -> Float[np.ndarray, "samples features"]:
        return project_out(X, self.directions_)

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.directions_[0]

    def _learned(self) -> dict[str, object]:
        return {"n_found": len(self.directions_)}
