"""LEACE's theorems; INLP's orthonormal directions, chance-level probes after projection, mirrored decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from concept_erasure import LeaceFitter
from concept_erasure.shrinkage import optimal_linear_shrinkage
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from probes.direction import Locus, cosine
from probes.estimators import DifferenceInMeans, Inlp, LeaceEraser, LogisticProbe

LOCUS = Locus("resid_post", 2, "post_last")
SHAPES = [(200, 30), (40, 120)]  # more samples than features, and fewer


def _gap(X: np.ndarray, y: np.ndarray) -> float:
    return float(np.linalg.norm(X[y].mean(axis=0) - X[~y].mean(axis=0)))


def _change(before: np.ndarray, after: np.ndarray) -> float:
    return float(np.square(after - before).sum() / np.square(before - before.mean(axis=0)).sum())


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_class_means_become_equal_so_that_no_linear_probe_beats_chance(n, d, share, plant) -> None:
    X, y = plant(d, gap=4.0, steepness=5.0, offset=3.0).draw(n, seed=1, share=share)
    assert roc_auc_score(y, LogisticProbe().fit(X, y).decision_function(X)) > 0.95  # the control: it can be read before
    erased = LeaceEraser().fit_transform(X, y)
    assert _gap(X, y) > 1
    assert _gap(erased, y) < 1e-9
    probe = LogisticRegression(C=1e3, class_weight="balanced", tol=1e-10).fit(erased - erased.mean(axis=0), y)
    assert np.abs(probe.coef_).max() < 1e-6
    with pytest.raises(ValueError, match="have the same mean"):
        LogisticProbe().fit(erased, y)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_erasing_twice_is_erasing_once_and_the_mean_stays(n: int, d: int, plant: Any) -> None:
    planted = plant(d, gap=4.0, steepness=5.0, offset=3.0)
    X, y = planted.draw(n, seed=1)
    eraser = LeaceEraser().fit(X, y)
    for samples in (X, planted.draw(50, seed=2)[0]):
        once = eraser.transform(samples)
        np.testing.assert_allclose(eraser.transform(once), once, atol=1e-10)
        assert np.abs(once - samples).max() > 0.1
    np.testing.assert_allclose(eraser.transform(X).mean(axis=0), X.mean(axis=0), atol=1e-10)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("shrinkage", [True, False])
def test_what_is_removed_has_rank_one_along_the_difference_in_means(n, d, shrinkage, plant) -> None:
    X, y = plant(d, gap=4.0, steepness=5.0).draw(n, seed=1)
    eraser = LeaceEraser(shrinkage).fit(X, y)
    assert np.linalg.matrix_rank(X - eraser.transform(X), tol=1e-8) == 1
    assert eraser.removed_ @ eraser.read_ == pytest.approx(1.0, abs=1e-10)
    direction = eraser.direction("removed", Locus("resid_post", 1, "post_last"))
    assert cosine(direction.vector, DifferenceInMeans().fit(X, y).theta_) == pytest.approx(1.0, abs=1e-6)
    assert abs(cosine(eraser.read_, eraser.removed_)) < 0.98  # what is read is something else
    assert direction.provenance["shrinkage"] == eraser.shrinkage_


def test_it_is_the_packages_eraser_with_the_shrinkage_it_chose(plant: Any) -> None:
    X, y = plant(30, gap=4.0, steepness=5.0).draw(200, seed=1)
    package = LeaceFitter.fit(torch.tensor(X), torch.tensor(y.astype(float))).eraser
    eraser = LeaceEraser().fit(X, y)
    np.testing.assert_allclose(eraser.transform(X), package(torch.tensor(X)).numpy(), atol=1e-9)
    S = np.cov(X.T, bias=True)
    shrunk = optimal_linear_shrinkage(torch.tensor(S), 200).numpy()
    mine = (1 - eraser.shrinkage_) * S + eraser.shrinkage_ * np.trace(S) / 30 * np.eye(30)
    np.testing.assert_allclose(mine, shrunk, atol=1e-10)
    assert 0.01 < eraser.shrinkage_ < 0.99
    assert LeaceEraser(shrinkage=False).fit(X, y).shrinkage_ == 0.0


def test_a_weak_concept_of_a_rare_class_is_erased_too(plant: Any) -> None:
    """The package's own threshold leaves all of it, without a word."""
    X, y = plant(5, gap=0.05).draw(3000, seed=7, share=0.01)
    X -= np.outer(y, 0.9 * (X[y].mean(axis=0) - X[~y].mean(axis=0)))
    package = LeaceFitter.fit(torch.tensor(X), torch.tensor(y.astype(float))).eraser
    assert _gap(package(torch.tensor(X)).numpy(), y) > 0.9 * _gap(X, y)
    assert _gap(LeaceEraser().fit_transform(X, y), y) < 1e-9


def test_with_few_samples_held_out_ones_hide_it_from_earlier_probes_only(plant: Any) -> None:
    noise = plant(300, gap=1.0, steepness=1000.0)
    shift = np.random.default_rng(4).standard_normal(300) @ noise.root  # the label lies where the stream varies
    planted = replace(noise, shift=0.8 * shift / np.linalg.norm(shift))
    X, y = planted.draw(240, seed=1)
    held_out, truth = planted.draw(1000, seed=2)
    new, labels = planted.draw(1000, seed=3)
    shrunk, plain = LeaceEraser().fit(X, y), LeaceEraser(shrinkage=False).fit(X, y)
    erased = shrunk.transform(held_out)
    earlier = LogisticProbe(0.01).fit(X, y)
    assert roc_auc_score(truth, earlier.decision_function(held_out)) > 0.7
    assert roc_auc_score(truth, earlier.decision_function(erased)) < 0.6
    fresh = LogisticProbe(0.01).fit(shrunk.transform(new), labels)
    assert roc_auc_score(truth, fresh.decision_function(erased)) > 0.6  # an estimate from few samples is no guarantee
    assert _change(held_out, erased) < 0.5 * _change(held_out, plain.transform(held_out))  # the control: no shrinkage


def test_float32_stays_float32_and_float16_is_taken(plant: Any) -> None:
    X, y = plant(10, gap=4.0).draw(80, seed=1)
    eraser = LeaceEraser().fit(X, y)
    assert eraser.transform(X.astype(np.float32)).dtype == np.float32
    assert eraser.transform(X.astype(np.float16)).dtype in (np.float32, np.float64)
    np.testing.assert_allclose(eraser.transform(X.astype(np.float32)), eraser.transform(X), atol=1e-5)


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


def test_no_direction_at_all_and_a_negative_alpha_are_errors(samples: tuple) -> None:
    for n_directions in (0, -1):
        with pytest.raises(ValueError, match=f"n_directions must be at least 1, got {n_directions}"):
            Inlp(n_directions).fit(*samples)
    with pytest.raises(ValueError, match="alpha must be 0 or greater"):
        Inlp(2).fit(*samples).counterfactual(samples[0], -1.0)
