"""The logistic probe is scikit-learn's on standardised inputs; Platt scaling is calibrated, finite and monotone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.logistic import CS, fit_logistic, fit_platt
from probes.metrics import expected_calibration_error


def _two_classes(n: int = 120, d: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return rng.standard_normal((n, d)) * np.geomspace(0.1, 100, d) + 5 + 0.5 * y[:, None], y


@pytest.mark.parametrize("C", CS)
def test_it_is_sklearns_at_the_same_c_on_raw_activations(C: float) -> None:
    X, y = _two_classes()
    probe = fit_logistic(X, y, np.arange(len(y)), Cs=(C,))
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=C, class_weight="balanced", max_iter=5000))
    reference.fit(X, y)
    np.testing.assert_allclose(probe.decision_function(X), reference.decision_function(X), atol=1e-9)
    assert probe.C == C


def test_rescaling_or_shifting_a_feature_changes_nothing() -> None:
    X, y = _two_classes()
    plain = fit_logistic(X, y, np.arange(len(y)), Cs=(0.1,)).decision_function(X)
    moved = X * np.geomspace(1e-3, 1e3, X.shape[1]) - 50
    np.testing.assert_allclose(
        fit_logistic(moved, y, np.arange(len(y)), Cs=(0.1,)).decision_function(moved), plain, atol=1e-5
    )


def test_a_dead_feature_and_float16_activations_are_no_trouble() -> None:
    X, y = _two_classes()
    X[:, 3] = 7.0
    probe = fit_logistic(X.astype(np.float16), y, np.arange(len(y)))
    assert np.isfinite(probe.weight).all()
    assert probe.weight.dtype == np.float64


def test_c_is_chosen_on_held_out_groups_not_on_copies_of_the_training_rows() -> None:
    """Six copies of each row with labels of noise: with copies on both sides of a fold, memorising (large C) wins."""
    rng = np.random.default_rng(0)
    base, noise = rng.standard_normal((40, 60)), rng.permutation(np.arange(40) % 2 == 0)
    X, y, groups = np.repeat(base, 6, axis=0), np.repeat(noise, 6), np.repeat(np.arange(40), 6)
    X = X + 0.01 * rng.standard_normal(X.shape)

    def inner_auroc(C: float, by: np.ndarray) -> float:
        from sklearn.model_selection import GroupKFold

        scores = []
        for a, b in GroupKFold(3).split(X, y, by):
            scores.append(roc_auc_score(y[b], fit_logistic(X[a], y[a], by[a], Cs=(C,)).decision_function(X[b])))
        return float(np.mean(scores))

    separated, leaking = ({C: inner_auroc(C, by) for C in CS} for by in (groups, np.arange(len(y))))
    assert min(leaking.values()) > 0.9  # the control: leaking folds do reward memorising
    assert max(separated.values()) < 0.7
    chosen = fit_logistic(X, y, groups).C
    assert chosen == next(C for C in CS if separated[C] >= max(separated.values()) - 1e-3)
    assert separated[chosen] < leaking[chosen]


def test_the_simplest_of_equally_good_cs_is_taken() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(90) % 2 == 0
    X = rng.standard_normal((90, 3)) + 20 * y[:, None]
    assert min(CS) == fit_logistic(X, y, np.arange(90)).C


def test_a_planted_signal_is_read_and_shuffled_labels_are_not() -> None:
    rng = np.random.default_rng(2)
    y = np.arange(400) % 2 == 0
    X = rng.standard_normal((400, 20))
    X[:, 0] += 2.5 * y
    train, test = np.arange(200), np.arange(200, 400)

    def held_out(labels: np.ndarray) -> float:
        probe = fit_logistic(X[train], labels[train], train)
        return float(roc_auc_score(labels[test], probe.decision_function(X[test])))

    assert held_out(y) > 0.93
    assert np.mean([held_out(rng.permutation(y)) for _ in range(5)]) == pytest.approx(0.5, abs=0.07)


def test_too_few_groups_or_one_class_are_errors() -> None:
    X, y = _two_classes(n=20)
    with pytest.raises(ValueError, match="n_splits=3 greater than the number of groups: 2"):
        fit_logistic(X, y, np.arange(20) % 2)
    with pytest.raises(ValueError, match="at least 2 classes in the data, but the data contains only one class"):
        fit_logistic(X, np.ones(20, dtype=bool), np.arange(20))


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
