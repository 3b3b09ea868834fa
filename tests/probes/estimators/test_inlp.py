"""INLP: orthonormal directions, chance-level probes after projection, mirrored decisions after the flip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from probes.direction import Locus
from probes.estimators import Inlp, LogisticProbe
from probes.geometry.angles import cosine

LOCUS = Locus("resid_post", 2, "post_last")


@pytest.fixture
def samples(plant: Any) -> tuple[np.ndarray, np.ndarray]:
    return plant(24, gap=3.0, steepness=4.0, offset=2.0).draw(160, seed=1, share=0.4)


def test_directions_are_orthonormal_and_the_first_is_the_logistic_probes(samples: tuple) -> None:
    X, y = samples
    inlp = Inlp(5, C=0.1).fit(X, y)
    np.testing.assert_allclose(inlp.directions_ @ inlp.directions_.T, np.eye(5), atol=1e-12)
    probe = LogisticProbe(0.1).fit(X, y)
    assert cosine(inlp.directions_[0], probe.coef_[0]) == pytest.approx(1.0, abs=1e-12)
    distance = probe.decision_function(X) / np.linalg.norm(probe.coef_)
    np.testing.assert_allclose(inlp.distances(X)[:, 0], distance, atol=1e-9)


def test_it_is_the_papers_loop_of_probes_on_projected_samples(samples: tuple) -> None:
    X, y = samples
    inlp = Inlp(4, C=0.1, class_weight=None).fit(X, y)
    left = X
    for i in range(4):
        probe = LogisticProbe(0.1, class_weight=None).fit(left, y)
        np.testing.assert_array_equal(probe.decision_function(left) > 0, inlp.distances(X)[:, i] > 0)
        weight = probe.coef_[0] - inlp.directions_[:i].T @ (inlp.directions_[:i] @ probe.coef_[0])
        assert cosine(weight, inlp.directions_[i]) == pytest.approx(1.0, abs=1e-6)
        left = left - np.outer(left @ inlp.directions_[i], inlp.directions_[i])
    np.testing.assert_allclose(inlp.transform(X), left, atol=1e-9)


def test_projecting_out_is_idempotent_and_takes_what_probes_read(plant: Any) -> None:
    planted = plant(24, gap=3.0)
    X, y = planted.draw(300, seed=1)
    fresh, truth = planted.draw(600, seed=2)
    inlp = Inlp(12, C=0.1).fit(X, y)
    gone = inlp.transform(fresh)
    np.testing.assert_allclose(gone @ inlp.directions_.T, 0, atol=1e-12)
    np.testing.assert_allclose(inlp.transform(gone), gone, atol=1e-12)

    def auroc(before: np.ndarray, after: np.ndarray) -> float:
        return float(roc_auc_score(truth, LogisticProbe(0.1).fit(before, y).decision_function(after)))

    assert auroc(inlp.transform(X), gone) < 0.65
    random = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 12)))[0]
    assert auroc(X - X @ random @ random.T, fresh - fresh @ random @ random.T) > 0.8  # the control: as many others


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 4.0])
def test_flipping_mirrors_every_decision_and_touches_nothing_else(alpha: float, plant: Any) -> None:
    planted = plant(24, gap=3.0, steepness=4.0, offset=2.0)
    X, y = planted.draw(160, seed=1, share=0.4)
    fresh, _ = planted.draw(100, seed=2)
    inlp, probe = Inlp(3, C=0.1).fit(X, y), LogisticProbe(0.1).fit(X, y)
    flipped = inlp.counterfactual(fresh, alpha)
    np.testing.assert_allclose(inlp.distances(flipped), -alpha * inlp.distances(fresh), atol=1e-9)
    np.testing.assert_allclose(probe.decision_function(flipped), -alpha * probe.decision_function(fresh), atol=1e-8)
    np.testing.assert_allclose(inlp.transform(flipped), inlp.transform(fresh), atol=1e-9)
    if alpha == 1.0:
        assert (probe.predict(flipped) != probe.predict(fresh)).all()
        np.testing.assert_allclose(inlp.counterfactual(flipped), fresh, atol=1e-9)
        through_origin = fresh - 2 * (fresh @ inlp.directions_.T) @ inlp.directions_  # the control: not at the boundary
        assert (probe.predict(through_origin) != probe.predict(fresh)).mean() < 0.9


def test_flipping_along_other_directions_leaves_the_probe_as_it_was(samples: tuple) -> None:
    X, y = samples
    inlp, probe = Inlp(3, C=0.1).fit(X, y), LogisticProbe(0.1).fit(X, y)
    rng = np.random.default_rng(0)
    inlp.directions_ = np.linalg.qr(rng.standard_normal((24, 3)))[0].T
    inlp.thresholds_ = inlp.directions_ @ X.mean(axis=0)
    assert (probe.predict(inlp.counterfactual(X)) != probe.predict(X)).mean() < 0.5


def test_towards_a_class_all_go_to_its_side(samples: tuple) -> None:
    X, y = samples
    labels = np.where(y, "harmful", "benign")
    inlp = Inlp(3, C=0.1).fit(X, labels)
    for label, side in (("harmful", 1), ("benign", -1)):
        moved = inlp.counterfactual(X, towards=label)
        np.testing.assert_allclose(inlp.distances(moved), side * np.abs(inlp.distances(X)), atol=1e-9)
        there = (side * inlp.distances(X) > 0).all(axis=1)
        assert 0 < there.sum() < len(X)
        np.testing.assert_allclose(moved[there], X[there], atol=1e-9)
    with pytest.raises(ValueError, match="towards must be one of 'benign', 'harmful', got 'harmless'"):
        inlp.counterfactual(X, towards="harmless")


def test_it_stops_where_the_means_are_equal_even_if_only_rounding_is_left(plant: Any) -> None:
    X, y = plant(6, gap=3.0, offset=10.0).draw(50, seed=1)
    inlp = Inlp(20).fit(X, y)
    assert len(inlp.directions_) <= 6
    assert len(Inlp(2).fit(X, y).directions_) == 2
    np.testing.assert_allclose(inlp.directions_ @ inlp.directions_.T, np.eye(len(inlp.directions_)), atol=1e-9)
    axis = np.outer(np.arange(20) - 9.5, [0.0, 1.0, 0.0]) + 5.0  # one feature varies; the others never do
    inlp = Inlp(3).fit(axis, np.arange(20) > 9)
    np.testing.assert_allclose(inlp.directions_, [[0.0, 1.0, 0.0]], atol=1e-12)
    assert inlp.direction("r", LOCUS).provenance["n_found"] == 1


def test_each_direction_can_be_had(samples: tuple) -> None:
    X, y = samples
    inlp = Inlp(3).fit(X, y)
    for index in range(3):
        direction = inlp.direction("r", LOCUS, index=index)
        np.testing.assert_allclose(direction.vector, inlp.directions_[index], atol=1e-7)
        assert direction.provenance["index"] == index
        assert direction.mean_positive == pytest.approx(direction.project(X)[y].mean(), abs=1e-9)
        assert direction.mean_positive > direction.mean_negative
    assert np.array_equal(inlp.direction("r", LOCUS).vector, inlp.direction("r", LOCUS, index=0).vector)


@pytest.mark.parametrize("n_directions", [0, -1])
def test_no_direction_at_all_is_an_error(n_directions: int, samples: tuple) -> None:
    with pytest.raises(ValueError, match=f"n_directions must be at least 1, got {n_directions}"):
        Inlp(n_directions).fit(*samples)


def test_a_negative_alpha_is_an_error(samples: tuple) -> None:
    with pytest.raises(ValueError, match="alpha must be 0 or greater"):
        Inlp(2).fit(*samples).counterfactual(samples[0], -1.0)
