"""Discrimination and calibration against known values, with groups as the independent units."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score, roc_curve

from probes.statistics.intervals import auroc_interval
from probes.statistics.metrics import brier, d_prime, discrimination, expected_calibration_error


def _scored(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3 == 0
    return y, rng.standard_normal(n) + 1.2 * y


def test_measures_are_sklearns_with_and_without_ties() -> None:
    rng = np.random.default_rng(5)
    for trial in range(60):
        y = rng.permutation(np.arange(int(rng.integers(4, 300))) < 2 + trial % 2)
        score = rng.standard_normal(len(y)) if trial % 3 else rng.integers(-2, 3, len(y)).astype(float)
        measured = discrimination(y, score, np.arange(len(y)))
        fpr, tpr, _ = roc_curve(y, score, drop_intermediate=False)
        assert measured.auroc.estimate == pytest.approx(roc_auc_score(y, score), abs=1e-12)
        assert measured.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, score > 0), abs=1e-12)
        assert measured.recall_at_1pct_fpr == pytest.approx(tpr[fpr <= 0.01].max(), abs=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="1 of 3 scores are NaN or infinite"):
        discrimination(np.array([True, False, True]), np.array([0.0, bad, 1.0]), np.arange(3))


def test_duplicating_every_row_leaves_the_interval_unchanged() -> None:
    y, score = _scored()
    groups = np.arange(60)
    once = discrimination(y, score, groups)
    copied = discrimination(np.tile(y, 5), np.tile(score, 5), np.tile(groups, 5))
    assert copied.auroc == once.auroc
    assert copied.n_positive == 5 * once.n_positive
    naive = discrimination(np.tile(y, 5), np.tile(score, 5), np.arange(300))
    assert naive.auroc.high - naive.auroc.low < 0.6 * (once.auroc.high - once.auroc.low)


def test_a_group_of_both_classes_counts_once_in_each() -> None:
    y, score = _scored()
    measured = discrimination(y, score, np.arange(60) // 3)  # every group holds one positive and two negatives
    assert measured.auroc == auroc_interval(roc_auc_score(y, score), 20, 20)


def test_balanced_accuracy_uses_the_threshold() -> None:
    y = np.array([True, True, False, False, False, False])
    score = np.array([1.0, -1.0, -1.0, -1.0, -1.0, 0.0])  # at the threshold is not above it
    assert discrimination(y, score, np.arange(6)).balanced_accuracy == 0.75


@pytest.mark.parametrize("n", [0, 3])
def test_one_class_has_no_auroc(n: int) -> None:
    with pytest.raises(ValueError, match=f"an AUROC needs both classes; got {n} positive of 3"):
        discrimination(np.arange(3) < n, np.zeros(3), np.arange(3))


def test_brier_is_sklearns() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(50)
    y = rng.random(50) < p
    assert brier(y, p) == pytest.approx(brier_score_loss(y, p))
    assert brier(np.array([True, False]), np.array([1.0, 0.0])) == 0.0
    assert brier(np.array([True, False]), np.array([0.5, 0.5])) == 0.25


def test_calibration_error_of_two_known_bins() -> None:
    p = np.repeat([0.2, 0.9], 50)
    y = np.concatenate([np.arange(50) < 20, np.arange(50) < 35])  # 0.4 and 0.7
    assert expected_calibration_error(y, p, n_bins=2) == pytest.approx(0.2)


@pytest.mark.parametrize("sorted_rows", [True, False])
def test_equal_probabilities_share_a_bin_for_any_order_of_rows(sorted_rows: bool) -> None:
    y = np.arange(100) < 50 if sorted_rows else np.arange(100) % 2 == 0
    assert expected_calibration_error(y, np.full(100, 0.5)) == pytest.approx(0.0)
    assert expected_calibration_error(y, np.full(100, 0.8)) == pytest.approx(0.3)


def test_d_prime_of_normal_scores_is_their_distance_and_without_spread_infinite_or_zero() -> None:
    rng = np.random.default_rng(3)
    y = np.arange(40_000) % 4 == 0
    score = rng.standard_normal(40_000) + 1.5 * y
    assert d_prime(y, score) == pytest.approx(1.5, abs=0.04)
    assert d_prime(y, -7 * score + 2) == pytest.approx(-d_prime(y, score))
    y = np.array([True, True, False, False])
    assert [d_prime(y, score) for score in (y.astype(float), -y.astype(float), np.ones(4))] == [np.inf, -np.inf, 0.0]


@pytest.mark.parametrize("value", [2.710505431213761e-17, 0.1, -1e4 / 3])
def test_equal_scores_have_distance_zero_despite_rounding(value: float) -> None:
    for n in range(3, 100):
        assert d_prime(np.arange(n) % 3 == 0, np.full(n, value)) == 0.0
