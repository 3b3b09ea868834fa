"""The mass-mean probe equals linear discriminant analysis with pooled shrinkage, without a d × d matrix if n < d."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf
from sklearn.covariance import oas as sklearn_oas
from sklearn.covariance import shrunk_covariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from probes.covariance import ShrunkCovariance, ledoit_wolf, oas
from probes.estimators import DifferenceInMeans, MassMean
from probes.geometry.angles import cosine


def _centred(n: int, d: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d)) * np.geomspace(5, 0.1, d)
    return X - X.mean(axis=0)


@pytest.mark.parametrize(("n", "d"), [(30, 100), (100, 30), (50, 50)])
@pytest.mark.parametrize("shrinkage", [1e-3, 0.2, 1.0])
def test_solving_is_multiplying_by_the_dense_inverse(n: int, d: int, shrinkage: float) -> None:
    X, v = _centred(n, d), np.random.default_rng(1).standard_normal(d)
    dense = shrunk_covariance(X.T @ X / n, shrinkage)
    np.testing.assert_allclose(ShrunkCovariance(X, shrinkage).solve(v), np.linalg.solve(dense, v), rtol=1e-8)
    other = np.linalg.solve(shrunk_covariance(X.T @ X / n, shrinkage / 2), v)  # the control: the shrinkage matters
    assert np.abs(other / np.linalg.solve(dense, v) - 1).max() > 1e-3


@pytest.mark.parametrize(("n", "d"), [(20, 200), (200, 20), (300, 5)])
def test_the_shrinkages_are_scikit_learns(n: int, d: int) -> None:
    X = _centred(n, d)
    assert ledoit_wolf(X) == pytest.approx(sklearn_ledoit_wolf(X, assume_centered=True)[1], abs=1e-10)
    assert oas(X) == pytest.approx(sklearn_oas(X, assume_centered=True)[1], abs=1e-10)
    assert abs(ledoit_wolf(X) - oas(X)) > 1e-6  # the control: they are two


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize(("n", "d"), [(60, 150), (150, 40)])
def test_it_is_linear_discriminant_analysis_of_equal_priors(solver: str, n: int, d: int, plant: Any) -> None:
    X, y = plant(d, gap=2.0, steepness=10.0, offset=1.0).draw(n, seed=1, share=0.3)
    lda = LinearDiscriminantAnalysis(solver=solver, shrinkage=0.2)
    probe, lda = MassMean(0.2).fit(X, y), lda.fit(X, y)
    weight, bias = lda.coef_[0], lda.intercept_[0] - np.log(lda.priors_[1] / lda.priors_[0])
    assert cosine(probe.coef_[0], weight) == pytest.approx(1.0, abs=1e-9)
    scale = np.linalg.norm(weight) / np.linalg.norm(probe.coef_[0])
    np.testing.assert_allclose(scale * probe.decision_function(X), X @ weight + bias, rtol=1e-6, atol=1e-8)
    if solver == "lsqr":
        assert scale == pytest.approx(1.0, abs=1e-8)
    assert cosine(MassMean(0.9).fit(X, y).coef_[0], weight) < 0.999  # the control: another shrinkage is another probe


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas"])
def test_it_beats_the_plain_difference_in_correlated_noise_and_not_in_white(shrinkage: Any, plant: Any) -> None:
    def auroc(probe: Any, steepness: float) -> float:
        planted = plant(200, gap=1.0, steepness=steepness)
        fresh, truth = planted.draw(2000, seed=2)
        return float(roc_auc_score(truth, probe.fit(*planted.draw(120, seed=1)).decision_function(fresh)))

    assert auroc(MassMean(shrinkage), 30.0) > auroc(DifferenceInMeans(), 30.0) + 0.05
    assert auroc(MassMean(shrinkage), 1.0) < auroc(DifferenceInMeans(), 1.0) + 0.02


def test_full_shrinkage_is_the_difference_in_means(plant: Any) -> None:
    X, y = plant(20, gap=2.0, steepness=5.0).draw(50, seed=1)
    full, plain = MassMean(1.0).fit(X, y), DifferenceInMeans().fit(X, y)
    assert cosine(full.coef_[0], plain.coef_[0]) == pytest.approx(1.0, abs=1e-12)
    assert np.array_equal(full.predict(X), plain.predict(X))
    assert cosine(MassMean(0.1).fit(X, y).coef_[0], plain.coef_[0]) < 0.99


def test_what_reads_and_what_writes_are_kept_apart(plant: Any) -> None:
    planted = plant(30, gap=2.0, steepness=10.0)
    probe = MassMean().fit(*planted.draw(4000, seed=1))
    assert cosine(probe.theta_, planted.shift) > 0.99
    covariance = planted.root.T @ planted.root
    assert cosine(probe.coef_[0], np.linalg.solve(covariance, planted.shift)) > 0.98
    assert cosine(probe.coef_[0], probe.theta_) < 0.9


def test_many_features_build_no_matrix_of_them() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 20_000)), np.arange(40) % 2 == 0
    X[y] += 0.1
    tracemalloc.start()
    MassMean().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * X.nbytes  # one 20,000 × 20,000 matrix is 500 times X


@pytest.mark.parametrize("given", [-0.1, 1.5, "lw", None, [0.1]])
def test_an_unknown_shrinkage_is_named(given: Any, plant: Any) -> None:
    with pytest.raises(ValueError, match="'ledoit_wolf', 'oas', 'bodnar' or a number in") as error:
        MassMean(given).fit(*plant(5, gap=2.0).draw(20, seed=1))
    assert repr(given) in str(error.value)


def test_no_shrinkage_needs_samples_enough(plant: Any) -> None:
    with pytest.raises(ValueError, match=r"20 samples of 30 features .* singular with shrinkage=0; use a larger"):
        MassMean(0).fit(*plant(30, gap=2.0).draw(20, seed=1))
    X, y = plant(30, gap=2.0).draw(200, seed=1)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    np.testing.assert_allclose(MassMean(0).fit(X, y).coef_, lda.coef_, rtol=1e-8)


def test_no_variation_within_classes_is_an_error() -> None:
    y = np.array([False, False, True, True])
    with pytest.raises(ValueError, match=r"needs variation within classes.*use DifferenceInMeans"):
        MassMean().fit(np.outer(y, [0.1, 0.7]) + 1 / 3, y)
