"""Mass-mean probe."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from probes.covariance import Shrinkage, shrunk_covariance
from probes.estimators.labelled import fit_labelled
from probes.estimators.linear import LinearBinaryProbe


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
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(self, shrinkage: Shrinkage = "ledoit_wolf") -> None:
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike) -> MassMean:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means, no variation within classes,
                an unknown shrinkage, or too little of it for so few samples.
        """
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
