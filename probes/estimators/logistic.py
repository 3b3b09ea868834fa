"""The logistic probe as a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

from probes.estimators.labelled import fit_labelled
from probes.estimators.linear import LinearBinaryProbe

ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


class LogisticProbe(LinearBinaryProbe):
    """L2-regularised logistic regression on inputs standardised by their training samples.

    `coef_` and `intercept_` are on raw samples: the score is the log-odds before calibration. A constant feature has
    weight 0.

    Args:
        C: inverse strength of the regularisation, of standardised features.
        class_weight: "balanced", None, or a mapping from label to weight.

    Attributes:
        coef_, intercept_: of the score, (1, d_model) and (1,) float64.
        classes_, class_count_, class_means_: (2,), (2,), (2, d_model).
    """

    def __init__(self, C: float = 1.0, class_weight: ClassWeight = "balanced") -> None:
        self.C = C
        self.class_weight = class_weight

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit on X (n_samples, d_model) and y (n_samples,) of two labels; the greater one is positive.

        Raises:
            ValueError: NaN or inf, one class only, constant samples, equal class means.
        """
        data = fit_labelled(self, X, y)
        sample_weight = compute_sample_weight(self.class_weight, self.classes_[data.positive.astype(int)])
        weight, bias = fit_standardised(data.X, data.positive, self.C, sample_weight)
        self._set_weight(weight, float(data.centre @ weight) - bias)
        return self


def fit_standardised(
    X: Float[np.ndarray, "n_samples d_model"],
    y: Bool[np.ndarray, " n_samples"],
    C: float,
    sample_weight: Float[np.ndarray, " n_samples"],
) -> tuple[Float[np.ndarray, " d_model"], float]:
    """Fit on centred samples scaled to unit variance; returns weight and bias on the centred ones as they came."""
    varies = np.ptp(X, axis=0) > 0
    scale = X[:, varies].std(axis=0)
    weight = np.zeros(X.shape[1])
    weight[varies], bias = _solve(X[:, varies] / scale, y, C, sample_weight)
    weight[varies] /= scale
    return weight, bias


def _solve(Z: np.ndarray, y: np.ndarray, C: float, sample_weight: np.ndarray) -> tuple[np.ndarray, float]:
    model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(Z, y, sample_weight)
    return model.coef_[0], float(model.intercept_[0])
