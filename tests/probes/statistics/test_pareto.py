"""Pareto fronts and the volume they dominate."""

import numpy as np
import pytest

from probes.statistics.pareto import front, hypervolume


def test_dominated_points_are_left_out() -> None:
    points = np.array([[0.1, 0.5, 0], [0.2, 0.2, 0], [0.2, 0.3, 0], [0.1, 0.5, 0], [np.nan, 0, 0], [0.5, 0.1, 0.0]])
    np.testing.assert_array_equal(front(points), [0, 1, 5])
    assert len(front(np.full((3, 3), np.nan))) == 0


def test_one_point_dominates_a_box() -> None:
    assert hypervolume(np.array([[0.25, 0.5, 0.0]])) == pytest.approx(0.75 * 0.5)
    assert hypervolume(np.zeros((1, 3))) == 1.0
    assert hypervolume(np.ones((1, 3))) == hypervolume(np.zeros((0, 3))) == 0.0


def test_two_boxes_overlap_once() -> None:
    """Inclusion and exclusion by hand."""
    a, b = np.array([0.2, 0.6, 0.1]), np.array([0.5, 0.3, 0.4])
    both = np.prod(1 - np.maximum(a, b))
    assert hypervolume(np.stack([a, b])) == pytest.approx(np.prod(1 - a) + np.prod(1 - b) - both)


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
