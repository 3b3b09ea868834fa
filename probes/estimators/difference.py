"""Difference in means as a classifier."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from probes.estimators.labelled import fit_labelled
from probes.estimators.linear import LinearBinaryProbe


class DifferenceInMeans(LinearBinaryProbe):
    """Difference-in-means classifier with the threshold at the midpoint (Arditi et al. 2024, arXiv 2406.11717).

    The score is the projection onto the unit direction minus the midpoint of the classes' mean projections, in
    residual-stream units. There are no hyperparameters.

    Attributes:
        theta_: mean of `classes_[1]` minus mean of `classes_[0]`, (d_model,) float64, not normalised.
        coef_, intercept_: of the score, (1, d_model) with unit norm and (1,).
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> DifferenceInMeans:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means.
        """
        self.theta_ = fit_labelled(self, X, y).theta
        weight = self.theta_ / np.linalg.norm(self.theta_)
        self._set_weight(weight, float(self.class_means_.mean(axis=0) @ weight))
        return self
