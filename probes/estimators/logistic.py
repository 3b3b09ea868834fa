"""Logistic probe as a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from sklearn.utils.class_weight import compute_sample_weight

from probes.estimators.labelled import fit_labelled
from probes.estimators.linear import LinearBinaryProbe
from probes.grid.solver import fit_logistic_batch

ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


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
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(self, C: float = 1.0, class_weight: ClassWeight = "balanced", tol: float = 1e-8) -> None:
        self.C = C
        self.class_weight = class_weight
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike) -> LogisticProbe:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means, C or a weight not positive.
        """
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
