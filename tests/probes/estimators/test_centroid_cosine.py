"""The centroid-cosine probe: the paper's formula, layer by layer, independent of a sample's length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from probes.direction import Locus
from probes.estimators import CentroidCosine

LOCUS = Locus("resid_post", 3, "inst_last")


@pytest.mark.parametrize("n_layers", [1, 2, 5])
def test_it_is_the_mean_over_layers_of_the_difference_of_cosines(n_layers: int, plant: Any) -> None:
    X, y = plant(20, gap=3.0, offset=0.5).draw(60, seed=1)
    layers = np.split(X, n_layers, axis=1)
    expected = np.mean(
        [cosine_similarity(h, [h[y].mean(0)])[:, 0] - cosine_similarity(h, [h[~y].mean(0)])[:, 0] for h in layers],
        axis=0,
    )
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


def test_its_direction_is_what_its_score_is_linear_in_at_unit_length(plant: Any) -> None:
    X, y = plant(12, gap=3.0, offset=1.0).draw(60, seed=1)
    probe = CentroidCosine().fit(X, y)
    unit_samples = X / np.linalg.norm(X, axis=1, keepdims=True)
    ratio = probe.decision_function(X) / probe.direction("r", LOCUS).project(unit_samples)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_a_direction_belongs_to_one_layer(plant: Any) -> None:
    probe = CentroidCosine(2).fit(*plant(12, gap=3.0).draw(60, seed=1))
    with pytest.raises(ValueError, match="a direction belongs to one layer; this CentroidCosine has n_layers=2"):
        probe.direction("r", LOCUS)


@pytest.mark.parametrize(
    ("n_layers", "message"),
    [
        (5, "n_layers \\* d_model features, got n_features=12 with n_layers=5"),
        (0, "n_layers=0"),
        (12, "two features per layer"),
    ],
)
def test_features_that_do_not_divide_into_layers_are_an_error(n_layers: int, message: str, plant: Any) -> None:
    with pytest.raises(ValueError, match=message):
        CentroidCosine(n_layers).fit(*plant(12, gap=3.0).draw(60, seed=1))


def test_centroids_that_differ_only_in_length_are_an_error() -> None:
    X = np.array([[1.0, 2.0], [3.0, 2.0], [4.0, 4.0], [4.0, 4.0]])  # class means (2, 2) and (4, 4)
    with pytest.raises(ValueError, match="the class means differ only in length"):
        CentroidCosine().fit(X, [0, 0, 1, 1])
    CentroidCosine().fit(X + np.array([0.0, 0.1]), [0, 0, 1, 1])
