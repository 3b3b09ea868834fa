"""Reading subspaces equal those of INLP; angles are recovered, and p-values are uniform without information."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.covariance import shrunk_covariance

from probes.contrast import Contrast
from probes.geometry.fitted_direction import fit_with_null
from probes.geometry.locus_geometry import Angles, compare_reading_subspaces, reading_subspaces
from tests.support.draws import draws
from tests.support.planted_contrasts import Planted, rejects_too_often


def _angles(planted: Planted, seed: int, k: int = 2, n: int = 39) -> Angles:
    X, a, b = planted.draw(seed)
    one, two = (fit_with_null(X, c, n=n, seed=seed) for c in (a, b))
    return compare_reading_subspaces(one, two, reading_subspaces(one, k), reading_subspaces(two, k))


@pytest.mark.parametrize("shape", [(120, 10), (40, 60)])
def test_the_subspace_is_that_of_projecting_out_and_fitting_again(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal(shape) * np.linspace(0.5, 3, shape[1]), np.arange(shape[0]) % 2 == 0
    X[y, :2] += 2
    rows = np.arange(shape[0])
    contrast = Contrast("a", rows, y, rows, np.full(shape[0], "train", object))
    fitted = fit_with_null(X, contrast, n=19)
    rows = reading_subspaces(fitted, 3)[0]
    centred = X - X.mean(axis=0)
    C = shrunk_covariance(centred.T @ centred / len(X), fitted.covariance.shrinkage)
    P, literal = np.eye(shape[1]), []
    for _ in range(3):
        theta = P @ (X[y].mean(axis=0) - X[~y].mean(axis=0))
        w = np.linalg.pinv(P @ C @ P) @ theta
        literal.append(w / np.linalg.norm(w))
        P = P - np.outer(literal[-1], literal[-1])
    assert subspace_angles(rows.T, np.array(literal).T).max() < 1e-5
    np.testing.assert_allclose(rows @ rows.T, np.eye(3), atol=1e-10)


def test_permuted_subspaces_are_those_of_fitting_each_labelling_and_k_is_at_most_d_model() -> None:
    X, a, _ = Planted(n=40).draw(0)
    fitted = fit_with_null(X, a, n=19)
    again = fit_with_null(X, replace(a, y=fitted.labels[5]), n=19)
    both = reading_subspaces(again, 2)[0] @ reading_subspaces(fitted, 2)[5].T
    np.testing.assert_allclose(np.abs(both), np.eye(2), atol=1e-8)
    X, a, _ = Planted(n=40).draw(0)
    with pytest.raises(ValueError, match="k must be between 1 and d_model = 16; got 17"):
        reading_subspaces(fit_with_null(X, a), 17)


@pytest.mark.parametrize("k", [1, 2])
def test_an_oblique_pair_is_nearer_than_permuted_ones_and_an_orthogonal_pair_is_not(k: int) -> None:
    oblique, orthogonal = (_angles(Planted(n=600, d=64, cosine=c), 0, k, n=199) for c in (0.6, 0.0))
    assert oblique.p <= 2 / 200
    assert orthogonal.p > 0.05
    assert np.cos(orthogonal.angles[0]) < np.cos(oblique.angles[0])
    assert len(oblique.angles) == k
    if k == 1:
        # whitened by 1 + 9/4 along its own axis each, two directions at cosine 0.6 read at another angle, not far
        assert np.cos(oblique.angles[0]) == pytest.approx(0.6, abs=0.2)


@draws(30, 150)
@pytest.mark.parametrize("dominant", [1.0, 8.0])
@pytest.mark.parametrize("paired", [True, False])
def test_p_is_uniform_for_labels_without_information(dominant: float, paired: bool, n_draws: int) -> None:
    planted = Planted(n=60, d=10, strength_a=0, strength_b=0, dominant=dominant, paired=paired)
    p = np.array([_angles(planted, seed).p for seed in range(n_draws)])
    assert not rejects_too_often(p)
