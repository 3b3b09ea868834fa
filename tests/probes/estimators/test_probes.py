"""Each probe's own formula: difference in means, mass-mean (discriminant analysis), logistic, centroid cosine."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.direction import Locus, cosine
from probes.estimators import CentroidCosine, DifferenceInMeans, LogisticProbe, MassMean
from probes.means import difference_in_means

LOCUS = Locus("resid_post", 3, "inst_last")


def test_it_is_the_unit_difference_cut_half_way(plant: Any) -> None:
    X, y = plant(12, gap=3.0, offset=5.0).draw(120, seed=1, share=0.25)
    probe = DifferenceInMeans().fit(X, y)
    theta = difference_in_means(X, y)
    np.testing.assert_allclose(probe.theta_, theta, atol=1e-12)
    np.testing.assert_allclose(probe.coef_[0], theta / np.linalg.norm(theta), atol=1e-12)
    score = probe.decision_function(X)
    assert score[y].mean() == pytest.approx(-score[~y].mean(), abs=1e-9)
    assert score[y].mean() - score[~y].mean() == pytest.approx(np.linalg.norm(theta), abs=1e-9)
    assert abs(score.mean()) > 0.1  # the control: the mean of all samples is elsewhere where classes are unequal


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


def test_no_shrinkage_needs_samples_enough_and_any_needs_variation_within_classes(plant: Any) -> None:
    with pytest.raises(ValueError, match=r"20 samples of 30 features .* singular with shrinkage=0; use a larger"):
        MassMean(0).fit(*plant(30, gap=2.0).draw(20, seed=1))
    X, y = plant(30, gap=2.0).draw(200, seed=1)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    np.testing.assert_allclose(MassMean(0).fit(X, y).coef_, lda.coef_, rtol=1e-8)
    y = np.array([False, False, True, True])
    with pytest.raises(ValueError, match=r"needs variation within classes.*use DifferenceInMeans"):
        MassMean().fit(np.outer(y, [0.1, 0.7]) + 1 / 3, y)


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("class_weight", ["balanced", None, {False: 1.0, True: 5.0}])
def test_it_is_a_scaler_and_a_logistic_regression(C: float, class_weight: Any) -> None:
    rng = np.random.default_rng(0)
    y = rng.random(150) < 0.3
    X = rng.standard_normal((150, 12)) * np.geomspace(0.01, 100, 12) + 5 + 0.5 * y[:, None]
    logistic = LogisticRegression(C=C, class_weight=class_weight, tol=1e-10, solver="newton-cholesky")
    reference = make_pipeline(StandardScaler(), logistic).fit(X, y)
    probe = LogisticProbe(C, class_weight).fit(X, y)
    np.testing.assert_allclose(probe.decision_function(X), reference.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(X @ probe.coef_[0] + probe.intercept_[0], reference.decision_function(X), atol=1e-5)
    raw = LogisticRegression(C=C, class_weight=class_weight, max_iter=10_000).fit(X - X.mean(axis=0), y)
    off = raw.decision_function(X - X.mean(axis=0)) - reference.decision_function(X)
    assert np.abs(off).max() > 1e-3  # the control


@pytest.mark.parametrize("n_layers", [1, 2, 5])
def test_it_is_the_mean_over_layers_of_the_difference_of_cosines(n_layers: int, plant: Any) -> None:
    X, y = plant(20, gap=3.0, offset=0.5).draw(60, seed=1)
    layers = np.split(X, n_layers, axis=1)
    cosines = [[cosine_similarity(h, [h[side].mean(0)])[:, 0] for side in (y, ~y)] for h in layers]
    expected = np.mean([positive - negative for positive, negative in cosines], axis=0)
    probe = CentroidCosine(n_layers).fit(X, y)
    np.testing.assert_allclose(probe.decision_function(X), expected, atol=1e-12)
    if n_layers > 1:  # the control: layers are not just one long vector
        assert np.abs(CentroidCosine().fit(X, y).decision_function(X) - expected).max() > 1e-3


def test_each_layers_length_does_not_count_but_its_sign_does(plant: Any) -> None:
    X, y = plant(12, gap=3.0).draw(60, seed=1)
    probe = CentroidCosine(3).fit(X, y)
    score = probe.decision_function(X)
    longer = X * np.repeat([10.0, 0.1, 3.0], 4)
    np.testing.assert_allclose(probe.decision_function(longer), score, atol=1e-12)
    np.testing.assert_allclose(probe.decision_function(-X), -score, atol=1e-12)
    assert np.abs(probe.decision_function(X + 1.0) - score).max() > 0.1
    assert (probe.decision_function(np.zeros((1, 12))) == 0).all()


def test_several_layers_and_centroids_that_differ_only_in_length_have_no_direction(plant: Any) -> None:
    probe = CentroidCosine(2).fit(*plant(12, gap=3.0).draw(60, seed=1))
    with pytest.raises(ValueError, match="a direction belongs to one layer; this CentroidCosine has n_layers=2"):
        probe.direction("r", LOCUS)
    X = np.array([[1.0, 2.0], [3.0, 2.0], [4.0, 4.0], [4.0, 4.0]])  # class means (2, 2) and (4, 4)
    with pytest.raises(ValueError, match="the class means differ only in length"):
        CentroidCosine().fit(X, [0, 0, 1, 1])
    CentroidCosine().fit(X + np.array([0.0, 0.1]), [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("n_layers", "message"),
    [
        (5, r"n_layers \* d_model features, got n_features=12 with n_layers=5"),
        (0, "n_layers=0"),
        (12, "two features per"),
    ],
)
def test_features_that_do_not_divide_into_layers_are_an_error(n_layers: int, message: str, plant: Any) -> None:
    with pytest.raises(ValueError, match=message):
        CentroidCosine(n_layers).fit(*plant(12, gap=3.0).draw(60, seed=1))
