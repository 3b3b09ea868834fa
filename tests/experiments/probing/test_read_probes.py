"""Calibration error and Brier score of a probe: small for a calibrated score, large for a misleading one."""

import numpy as np

from experiments.probing.read_probes import best_loci, calibration_error
from experiments.probing.results import GridRow


def test_calibration_figures_tell_a_score_that_misleads_from_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(800) % 2 == 1
    score, calibration, test = y + 0.7 * rng.standard_normal(800), np.arange(400), np.arange(400, 800)
    ece, brier = calibration_error(score, y, calibration, test)
    assert ece is not None
    assert brier is not None
    assert 0 < ece < 0.08
    assert 0.05 < brier < 0.2
    turned = np.where(np.arange(800) < 400, ~y, y)  # calibrated on labels that mean the opposite
    misled = calibration_error(score, turned, calibration, test)
    assert misled[0] is not None
    assert misled[1] is not None
    assert misled[0] > 0.4
    assert misled[1] > 0.4


def test_no_calibration_figures_without_both_classes_to_calibrate_on() -> None:
    y = np.arange(8) >= 4
    assert calibration_error(np.arange(8.0), y, np.arange(4), np.arange(8)) == (None, None)


def test_best_loci_are_logistic_ranked_by_validation_then_d_prime() -> None:
    rows = [GridRow.model_construct(probe=p, validation_auroc=v, validation_d_prime=d, auroc=t) for p, v, d, t in (
        ("logistic", 0.9, 1.0, 1.0), ("logistic", 1.0, 2.0, 0.5), ("logistic", 1.0, float("inf"), 0.6),
        ("difference_in_means", 1.0, 9.0, 1.0))]  # fmt: skip
    best = best_loci(rows, 2)
    assert [row.auroc for row in best] == [0.6, 0.5]
    assert [row.validation_d_prime for row in best] == [float("inf"), 2.0]
