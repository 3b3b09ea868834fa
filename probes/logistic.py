"""The logistic probe: L2-regularised, standardised on its training samples, C chosen by grouped cross-validation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler

CS = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class LinearProbe:
    """An affine score on raw activations: `X @ weight + bias`, positive for the declining class."""

    weight: np.ndarray  # (d_model,) float64
    bias: float
    C: float

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Score (n_samples, d_model); returns (n_samples,) log-odds before calibration."""
        return X.astype(np.float64) @ self.weight + self.bias


def fit_logistic(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray, Cs: tuple[float, ...] = CS, n_folds: int = 3
) -> LinearProbe:
    """Fit the probe; the smallest C within 0.001 of the best inner-fold AUROC is taken (the simplest good one).

    Raises:
        ValueError: fewer than `n_folds` groups, or a class is missing.
    """
    X = X.astype(np.float64)
    C = _choose_c(X, y, groups, Cs, n_folds) if len(Cs) > 1 else Cs[0]
    return _fit(X, y, C)


def _choose_c(X: np.ndarray, y: np.ndarray, groups: np.ndarray, Cs: tuple[float, ...], n_folds: int) -> float:
    folds = [(a, b) for a, b in GroupKFold(n_folds).split(X, y, groups) if len(set(y[a])) == len(set(y[b])) == 2]
    scores = [np.mean([roc_auc_score(y[b], _fit(X[a], y[a], C).decision_function(X[b])) for a, b in folds] or [0.5])
              for C in Cs]  # fmt: skip
    return next(C for C, score in zip(Cs, scores, strict=True) if score >= max(scores) - 1e-3)


def _fit(X: np.ndarray, y: np.ndarray, C: float) -> LinearProbe:
    scaler = StandardScaler().fit(X)
    model = LogisticRegression(C=C, class_weight="balanced", max_iter=5000).fit(scaler.transform(X), y)
    weight = model.coef_[0] / scaler.scale_
    return LinearProbe(weight, float(model.intercept_[0] - weight @ scaler.mean_), C)


@dataclass(frozen=True)
class Platt:
    """Platt scaling: probability = expit(slope * score + intercept)."""

    slope: float
    intercept: float

    def probability(self, score: np.ndarray) -> np.ndarray:
        return expit(self.slope * np.asarray(score, dtype=np.float64) + self.intercept)


def fit_platt(score: np.ndarray, y: np.ndarray) -> Platt:
    """Fit Platt scaling with his smoothed targets (Platt 1999), so that separable scores stay finite.

    The targets (n+ + 1)/(n+ + 2) and 1/(n- + 2) enter as weighted copies of both labels. Scores are standardised
    first, so that the weak ridge that keeps the fit finite does not depend on their scale.
    """
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
