"""The shrunk covariance equals that of the concept-erasure package, and is inverted equally through n or d_model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from concept_erasure.shrinkage import optimal_linear_shrinkage
from sklearn.covariance import ledoit_wolf_shrinkage, oas

from probes.covariance import shrunk_covariance


@pytest.mark.parametrize("shape", [(200, 12), (30, 90), (50, 50)])
def test_solving_is_the_inverse_of_the_packages_estimate(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) * np.linspace(0.5, 4, shape[1]) + 100
    centred = X - X.mean(axis=0)
    theirs = optimal_linear_shrinkage(torch.tensor(centred.T @ centred / shape[0]), shape[0]).numpy()
    vectors = rng.standard_normal((3, shape[1]))
    np.testing.assert_allclose(shrunk_covariance(X).solve(vectors), np.linalg.solve(theirs, vectors.T).T, rtol=1e-6)


@pytest.mark.parametrize("shape", [(200, 12), (30, 90), (50, 50)])
def test_the_other_rules_are_those_of_scikit_learn(shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).standard_normal(shape) * np.linspace(0.5, 4, shape[1])
    centred = X - X.mean(axis=0)
    theirs = ledoit_wolf_shrinkage(centred, assume_centered=True), oas(centred, assume_centered=True)[1]
    ours = shrunk_covariance(X, "ledoit_wolf").shrinkage, shrunk_covariance(X, "oas").shrinkage
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_isotropic_samples_shrink_all_the_way_and_never_beyond() -> None:
    """There the package's alpha may fall below zero, which is no covariance."""
    for seed in range(30):
        covariance = shrunk_covariance(np.random.default_rng(seed).standard_normal((10, 400)))
        assert 0 < covariance.shrinkage <= 1
        assert np.isfinite(covariance.solve(np.eye(400)[0])).all()


def test_a_constant_column_is_invertible_and_constant_rows_are_an_error() -> None:
    X = np.random.default_rng(1).standard_normal((500, 4)) * [1, 1, 1, 0]
    assert np.isfinite(shrunk_covariance(X).solve(np.eye(4))).all()
    with pytest.raises(ValueError, match="samples that differ"):
        shrunk_covariance(np.ones((5, 3)))
