"""The choice of C; Platt scaling is calibrated, finite and monotone."""

from __future__ import annotations

import numpy as np
import pytest

from probes.grid.logistic import fit_platt, simplest_of_the_best
from probes.statistics.metrics import expected_calibration_error


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


def _scores(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def test_platt_of_a_constant_score_is_the_base_rate() -> None:
    probability = fit_platt(np.full(100, 2.0), np.arange(100) < 30).probability(np.array([2.0]))
    assert probability == pytest.approx([0.3], abs=0.02)
