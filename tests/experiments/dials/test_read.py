"""The scores that calibrate a dial are cross-fitted: training prompts are scored by probes fitted without them."""

import numpy as np
import pytest

from experiments.dials.read import cross_fitted_scores
from probes.contrast import Contrast
from probes.grid.logistic import LinearProbe, fit_platt
from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import brier

N, D = 60, 200  # more dimensions than prompts: a probe fits any labels


@pytest.fixture
def noise() -> tuple[np.ndarray, Contrast, LinearProbe]:
    """Labels that nothing tells, in groups of two."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * N, D)).astype(np.float32), np.repeat(rng.random(N) < 0.5, 2)
    part = np.where(np.arange(2 * N) < N, "train", "validation").astype(object)
    contrast = Contrast("noise", np.arange(2 * N), y, np.repeat(np.arange(N), 2), part)
    train = (part == "train")[None]
    fit = fit_logistic_batch(X, train, y[None], [1.0])
    return X, contrast, LinearProbe(fit.weight[0, 0], float(fit.intercept[0, 0]), 1.0)


def test_a_probe_knows_its_own_prompts_and_unseen_scores_do_not(
    noise: tuple[np.ndarray, Contrast, LinearProbe],
) -> None:
    X, contrast, probe = noise
    train, y = contrast.within("train"), contrast.y
    own = probe.decision_function(X)
    unseen = cross_fitted_scores(X, contrast, probe, 0, "cpu")
    assert ((own[train] > 0) == y[train]).all()  # the control: it looks perfect
    assert np.mean((unseen[train] > 0) == y[train]) < 0.75
    others = contrast.within("validation")
    np.testing.assert_array_equal(unseen[others], own[others])


def test_calibrated_on_unseen_scores_it_does_not_boast(noise: tuple[np.ndarray, Contrast, LinearProbe]) -> None:
    X, contrast, probe = noise
    train, others, y = contrast.within("train"), contrast.within("validation"), contrast.y
    own, unseen = probe.decision_function(X), cross_fitted_scores(X, contrast, probe, 0, "cpu")
    boasting = brier(y[others], fit_platt(own[train], y[train]).probability(own[others]))
    honest = brier(y[others], fit_platt(unseen[train], y[train]).probability(unseen[others]))
    assert honest < boasting - 0.05
