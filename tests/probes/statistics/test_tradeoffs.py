"""Pareto fronts, the volume they dominate, and candidate thresholds of a probability."""

import numpy as np
import pytest

from probes.statistics.tradeoffs import candidate_thresholds, front, hypervolume


def test_dominated_points_are_left_out() -> None:
    points = np.array([[0.1, 0.5, 0], [0.2, 0.2, 0], [0.2, 0.3, 0], [0.1, 0.5, 0], [np.nan, 0, 0], [0.5, 0.1, 0.0]])
    np.testing.assert_array_equal(front(points), [0, 1, 5])
    assert len(front(np.full((3, 3), np.nan))) == 0


def test_the_volume_is_the_share_of_random_points_that_are_beaten() -> None:
    rng = np.random.default_rng(0)
    points, drawn = rng.random((12, 3)), rng.random((100_000, 3))
    beaten = (points[None] <= drawn[:, None]).all(axis=2).any(axis=1).mean()
    assert hypervolume(points) == pytest.approx(beaten, abs=0.005)
    assert hypervolume(points) == pytest.approx(hypervolume(points[front(points)]))
    assert hypervolume(points[:, [2, 0, 1]]) == pytest.approx(hypervolume(points))


def test_more_points_never_lose_volume_and_worse_points_add_none() -> None:
    rng = np.random.default_rng(1)
    points = rng.random((20, 3))
    volumes = [hypervolume(points[:n]) for n in range(1, 21)]
    assert np.diff(volumes).min() >= -1e-12
    worse = np.minimum(points + 0.1, 1.0)
    assert hypervolume(np.concatenate([points, worse])) == pytest.approx(hypervolume(points))
    assert hypervolume(worse) < hypervolume(points)  # the control


def test_classes_apart_are_cut_between_in_log_odds() -> None:
    p, y = np.array([0.01, 0.02, 0.98, 0.99]), np.array([False, False, True, True])
    found = candidate_thresholds(p, y)
    assert found[0] == 0.0
    assert found[-1] == 1.0
    assert np.isclose(found, 0.5).any()
    assert (np.diff(found) > 0).all()


def test_every_corner_is_kept_if_there_is_room() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(300) < 0.3
    p = 1 / (1 + np.exp(-(3 * y - 1.5 + rng.normal(size=300))))
    best = {(np.mean(p[~y] >= t), np.mean(p[y] < t)) for t in candidate_thresholds(p, y, 300)}
    for t in np.unique(p):  # no threshold beats what the cuts reach
        rates = np.mean(p[~y] >= t), np.mean(p[y] < t)
        assert any(a <= rates[0] and b <= rates[1] for a, b in best)


def test_there_are_no_more_than_asked_for() -> None:
    rng = np.random.default_rng(1)
    y = rng.random(5000) < 0.5
    p = rng.random(5000)
    assert 24 < len(candidate_thresholds(p, y, 48)) <= 50
    assert candidate_thresholds(np.full(9, 0.5), np.arange(9) < 4).tolist() == [0.0, 1.0]
    assert np.isfinite(candidate_thresholds(np.array([0.0, 1.0]), np.array([False, True]))).all()
