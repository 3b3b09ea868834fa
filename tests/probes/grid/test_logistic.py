"""The logistic probe equals scikit-learn's on standardised inputs; Platt scaling is calibrated, finite and monotone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.contrast import Contrast
from probes.grid.logistic import CS, LinearProbe, fit_platt, simplest_of_the_best
from probes.grid.probe_grid import ProbeGrid
from probes.statistics.metrics import expected_calibration_error


def _two_classes(n: int = 120, d: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return rng.standard_normal((n, d)) * np.geomspace(0.1, 100, d) + 5 + 0.5 * y[:, None], y


def _fit(X: np.ndarray, y: np.ndarray, C: float) -> tuple[LinearProbe, np.ndarray]:
    """Fit the first of two folds; returns the probe and its training rows."""
    contrast = Contrast("normative", np.arange(len(y)), y, np.arange(len(y)), np.full(len(y), "train", dtype=object))
    grid = ProbeGrid.cross_validated([contrast], n_folds=2, n_inner=2)
    return grid.fit(X, "normative", C=C), grid.folds[0][0].train


@pytest.mark.parametrize("C", CS)
def test_it_is_sklearns_at_the_same_c_on_raw_activations(C: float) -> None:
    X, y = _two_classes()
    probe, rows = _fit(X, y, C)
    reference = make_pipeline(
        StandardScaler(), LogisticRegression(C=C, class_weight="balanced", tol=1e-10, max_iter=5000)
    )
    expected = reference.fit(X[rows], y[rows]).decision_function(X)
    np.testing.assert_allclose(probe.decision_function(X), expected, atol=2e-4 * np.abs(expected).max())
    assert probe.C == C


def test_rescaling_or_shifting_a_feature_changes_nothing() -> None:
    X, y = _two_classes()
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) - 50
    plain, there = (_fit(x, y, 0.1)[0].decision_function(x) for x in (X, moved))
    np.testing.assert_allclose(there, plain, atol=1e-3 * np.abs(plain).max())


def test_a_dead_feature_and_float16_activations_are_no_trouble() -> None:
    X, y = _two_classes()
    X[:, 3] = 7.0
    probe, _ = _fit(X.astype(np.float16), y, 1.0)
    assert np.isfinite(probe.weight).all()
    assert probe.weight[3] == 0
    assert probe.weight.dtype == np.float64
    assert probe.decision_function(X.astype(np.float16)).dtype == np.float64


@pytest.mark.parametrize(
    ("scores", "taken"),
    [
        ([0.5, 0.9, 0.9005, 0.901], 1),  # within a thousandth of the best: 0.9 is, to the letter
        ([0.5, 0.8999, 0.9005, 0.901], 2),
        ([1.0, 1.0, 1.0], 0),
        ([0.2, 0.1, 0.3], 2),
        ([0.5], 0),
    ],
)
def test_the_simplest_of_equally_good_candidates_is_taken(scores: list[float], taken: int) -> None:
    assert simplest_of_the_best(np.array(scores) + 1e-12 * np.arange(len(scores), 0, -1)) == taken


def test_candidates_without_a_score_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected scores without NaN to choose a candidate; got \[0\.5, nan\]"):
        simplest_of_the_best(np.array([0.5, np.nan]))


def test_cs_are_in_order_of_simplicity() -> None:
    assert list(CS) == sorted(CS)


# -- Platt -------------------------------------------------------------------------------------------------------------


def _scores(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, the true probabilities expit(1.7 s - 0.8), and labels drawn from them."""
    rng = np.random.default_rng(seed)
    score = rng.standard_normal(n) * 1.5
    truth = 1 / (1 + np.exp(0.8 - 1.7 * score))
    return score, truth, rng.random(n) < truth


def test_platt_recovers_the_probabilities_that_drew_the_labels() -> None:
    score, _, y = _scores()
    platt = fit_platt(score, y)
    assert (platt.slope, platt.intercept) == pytest.approx((1.7, -0.8), abs=0.15)
    fresh, true_of_fresh, y_fresh = _scores(seed=1)
    assert np.abs(platt.probability(fresh) - true_of_fresh).max() < 0.04
    assert expected_calibration_error(y_fresh, platt.probability(fresh)) < 0.03
    assert expected_calibration_error(y_fresh, 1 / (1 + np.exp(-fresh))) > 0.06  # the control: uncalibrated


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e5])
def test_platt_does_not_depend_on_the_scores_scale_or_origin(scale: float) -> None:
    score, _, y = _scores(n=300)
    plain, moved = fit_platt(score, y), fit_platt(scale * (score + 3), y)
    np.testing.assert_allclose(moved.probability(scale * (score + 3)), plain.probability(score), atol=1e-5)


def test_platt_stays_finite_on_separable_scores_and_reaches_his_targets() -> None:
    score = np.concatenate([np.full(20, 5.0), np.full(50, -5.0)])
    y = np.arange(70) < 20
    probability = fit_platt(score, y).probability(np.array([5.0, -5.0]))
    assert probability == pytest.approx([21 / 22, 1 / 52], abs=2e-3)
    rng = np.random.default_rng(0)
    spread = fit_platt(rng.uniform(1, 2, 70) * np.sign(score), y)
    assert np.isfinite([spread.slope, spread.intercept]).all()


def test_platt_is_monotone_and_falls_where_the_score_is_inverted() -> None:
    score, _, y = _scores(n=500)
    grid = np.linspace(-6, 6, 200)
    assert (np.diff(fit_platt(score, y).probability(grid)) > 0).all()
    assert (np.diff(fit_platt(-score, y).probability(grid)) < 0).all()


def test_platt_of_a_constant_score_is_the_base_rate() -> None:
    probability = fit_platt(np.full(100, 2.0), np.arange(100) < 30).probability(np.array([2.0]))
    assert probability == pytest.approx([0.3], abs=0.02)
