"""A fitted logistic probe, the choice of its C, and Platt scaling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Real
from scipy.special import expit

CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # inverse strengths of the penalty, simplest first


@dataclass(frozen=True, repr=False)
class LinearProbe:
    """An affine score on raw activations: `X @ weight + bias`, positive for the declining class."""

    weight: Float[np.ndarray, " features"]
    bias: float
    C: float

    def __repr__(self) -> str:
        return f"LinearProbe(d_model {len(self.weight)}, bias {self.bias:.3g}, C {self.C:g})"

    def decision_function(self, X: Real[np.ndarray, "*batch features"]) -> Float[np.ndarray, "*batch"]:
        """Return the score of samples: log-odds before calibration."""
        return X.astype(np.float64) @ self.weight + self.bias


def simplest_of_the_best(scores: Float[np.ndarray, " candidates"]) -> int:
    """Return the index of the first (simplest) candidate within 0.001 of the best score; raises ValueError for NaN."""
    if np.isnan(scores).any():
        raise ValueError(f"expected scores without NaN to choose a candidate; got {scores.tolist()}")
    return int(np.flatnonzero(scores >= scores.max() - 1e-3)[0])


@dataclass(frozen=True)
class Platt:
    """Platt scaling: probability = expit(slope * score + intercept)."""

    slope: float
    intercept: float

    def log_odds(self, score: Real[np.ndarray, "*samples"]) -> Float[np.ndarray, "*samples"]:
        return self.slope * np.asarray(score, dtype=np.float64) + self.intercept

    def probability(self, score: Real[np.ndarray, "*samples"]) -> Float[np.ndarray, "*samples"]:
        return expit(self.log_odds(score))


def fit_platt(
    score: Real[np.ndarray, " samples"], y: Bool[np.ndarray, " samples"] | Integer[np.ndarray, " samples"]
) -> Platt:
    """Fit Platt scaling with Platt's smoothed targets (Platt 1999), so that the fit is finite for separable scores.

    The targets (n+ + 1)/(n+ + 2) and 1/(n- + 2) are weighted copies of both labels. Scores are standardised first, so
    that the weak ridge penalty does not depend on their scale.
    """
    from sklearn.linear_model import LogisticRegression  # dials are read without it

    y = np.asarray(y, dtype=bool)
    n_positive, n_negative = int(y.sum()), int((~y).sum())
    target = np.where(y, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    centre, spread = float(np.mean(score)), float(np.std(score)) or 1.0
    standard = ((np.asarray(score, dtype=np.float64) - centre) / spread)[:, None]
    model = LogisticRegression(C=1e3, max_iter=5000).fit(
        np.concatenate([standard, standard]),
        np.repeat([True, False], len(y)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    slope = float(model.coef_[0, 0]) / spread
    return Platt(slope, float(model.intercept_[0]) - slope * centre)
