"""The logistic probe equals scikit-learn's on standardised inputs, with weights for raw inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.estimators import LogisticProbe


def _two_classes(n: int = 150, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.3
    return rng.standard_normal((n, d)) * np.geomspace(0.01, 100, d) + 5 + 0.5 * y[:, None], y


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("class_weight", ["balanced", None, {False: 1.0, True: 5.0}])
def test_it_is_a_scaler_and_a_logistic_regression(C: float, class_weight: Any) -> None:
    X, y = _two_classes()
    logistic = LogisticRegression(C=C, class_weight=class_weight, tol=1e-10, solver="newton-cholesky")
    reference = make_pipeline(StandardScaler(), logistic).fit(X, y)
    probe = LogisticProbe(C, class_weight).fit(X, y)
    np.testing.assert_allclose(probe.decision_function(X), reference.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(X @ probe.coef_[0] + probe.intercept_[0], reference.decision_function(X), atol=1e-5)
    raw = LogisticRegression(C=C, class_weight=class_weight, max_iter=10_000).fit(X - X.mean(axis=0), y)
    assert (
        np.abs(raw.decision_function(X - X.mean(axis=0)) - reference.decision_function(X)).max() > 1e-3
    )  # the control


def test_its_tolerance_is_the_solvers() -> None:
    X, y = _two_classes()
    exact, rough = LogisticProbe().fit(X, y).coef_, LogisticProbe(tol=1e-2).fit(X, y).coef_
    off = np.linalg.norm((rough - exact) * X.std(axis=0)) / np.linalg.norm(exact * X.std(axis=0))
    assert 1e-7 < off < 1e-2


def test_the_solution_is_a_minimum() -> None:
    """The gradient of sum(w log-loss) + |b|^2 / (2 C) vanishes, in standardised units."""
    X, y = _two_classes()
    probe = LogisticProbe(C=0.5).fit(X, y)
    weight = np.where(y, len(y) / (2 * y.sum()), len(y) / (2 * (~y).sum()))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    residual = weight * (1 / (1 + np.exp(-probe.decision_function(X))) - y)
    assert np.abs(Z.T @ residual + probe.coef_[0] * X.std(axis=0) / 0.5).max() < 1e-4 * len(y)
    assert abs(residual.sum()) < 1e-4 * len(y)
    assert (
        np.abs(Z.T @ residual + probe.coef_[0] * X.std(axis=0) / 0.6).max() > 1e-2
    )  # the control: of another C it is none


def test_rescaling_or_shifting_a_feature_changes_nothing() -> None:
    X, y = _two_classes()
    moved = X * np.geomspace(1e3, 1e-3, X.shape[1]) - 50
    plain = LogisticProbe().fit(X, y).decision_function(X)
    np.testing.assert_allclose(LogisticProbe().fit(moved, y).decision_function(moved), plain, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 7.0, 0.1, 1e6 / 3])
def test_a_constant_feature_has_weight_zero_even_where_its_mean_is_rounded(value: float) -> None:
    X, y = _two_classes()
    without = LogisticProbe().fit(X, y)
    with_constant = LogisticProbe().fit(np.insert(X, 4, value, axis=1), y)
    assert with_constant.coef_[0, 4] == 0.0
    np.testing.assert_allclose(np.delete(with_constant.coef_, 4, axis=1), without.coef_, rtol=1e-6)
    assert (without.coef_ != 0).all()
