"""Iterative nullspace projection (INLP) with logistic probes, as an estimator with counterfactuals."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from probes.direction import Direction, Locus, Provenance
from probes.estimators.labelled import fit_labelled, read_samples, same_mean
from probes.estimators.linear import DirectionMixin
from probes.estimators.logistic import ClassWeight, fit_standardised
from probes.means import difference_in_means
from probes.subspace import nullspace_directions, project_out


class Inlp(DirectionMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Repeat: fit a logistic probe and project its direction out (Ravfogel et al. 2020, arXiv 2004.07667).

    Each probe decides by the signed distance `directions_[i] @ x - thresholds_[i]`. The directions are orthonormal, so
    the i-th probe has the same score on projected and on original samples.

    Args:
        n_directions: the number of directions; fewer are kept if the class means become equal (`len(directions_)`).
        C, class_weight, tol: parameters of each `LogisticProbe`.

    Attributes:
        directions_: (k, d_model) float64, orthonormal, in order of fitting, each towards `classes_[1]`.
        thresholds_: (k,), the decision threshold along each direction.
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(
        self, n_directions: int = 4, C: float = 1.0, class_weight: ClassWeight = "balanced", tol: float = 1e-8
    ) -> None:
        self.n_directions = n_directions
        self.C = C
        self.class_weight = class_weight
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike) -> Inlp:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means, n_directions below 1.
        """
        if self.n_directions < 1:
            raise ValueError(f"n_directions must be at least 1, got {self.n_directions}")
        data = fit_labelled(self, X, y)
        sample_weight = compute_sample_weight(self.class_weight, self.classes_[data.positive.astype(int)])
        rounding = 1e-10 * np.abs(data.X).max(axis=0)
        fits: list[tuple[Float[np.ndarray, " features"], float]] = []

        def fit(found: Float[np.ndarray, "1 found features"]) -> Float[np.ndarray, "1 features"]:
            left = project_out(data.X, found[0])
            left[:, np.abs(left).max(axis=0) <= rounding] = 0  # else rounding would be scaled up to unit variance
            if len(fits) < found.shape[1] or same_mean(left, difference_in_means(left, data.positive)):
                return np.zeros((1, left.shape[1]))
            fits.append(fit_standardised(left, data.positive, self.C, sample_weight, self.tol))
            return fits[-1][0][None]

        directions = nullspace_directions(fit, 1, self.n_directions, data.X.shape[1])[0, : len(fits)]
        offsets = [bias / (direction @ weight) for direction, (weight, bias) in zip(directions, fits, strict=True)]
        self.directions_, self.thresholds_ = directions, directions @ data.centre - offsets
        return self

    def transform(self, X: ArrayLike) -> Float[np.ndarray, "samples features"]:
        """Project the directions out of (n_samples, d_model), to zero; float32 stays float32."""
        check_is_fitted(self)
        X = read_samples(self, X, keep_float32=True)
        return project_out(X.astype(np.float64), self.directions_).astype(X.dtype)

    def distances(self, X: ArrayLike) -> Float[np.ndarray, "samples k"]:
        """Return each sample's signed distance to each probe's boundary; positive for `classes_[1]`."""
        check_is_fitted(self)
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
        X = read_samples(self, X, keep_float32=True)
        wanted = -alpha * distance if towards is None else alpha * np.abs(distance) * self._side(towards)
        return (X + (wanted - distance) @ self.directions_).astype(X.dtype)

    def direction(
        self, name: str, locus: Locus, provenance: Provenance | None = None, *, positive: object = None, index: int = 0
    ) -> Direction:
        """Return one of `directions_`, by default the first; `positive` as in `DirectionMixin.direction`."""
        check_is_fitted(self)
        return self._direction_along(self.directions_[index], name, locus, provenance, positive, index=index)

    def _side(self, label: object) -> int:
        sides = dict(zip(self.classes_.tolist(), (-1, 1), strict=True))
        if label not in sides:
            raise ValueError(f"towards must be one of {', '.join(map(repr, sides))}, got {label!r}")
        return sides[label]

    def _axis(self) -> Float[np.ndarray, " features"]:
        return self.directions_[0]

    def _learned(self) -> dict[str, object]:
        return {"n_found": len(self.directions_)}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
