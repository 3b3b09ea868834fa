"""Angles between directions, and between the subspaces they span."""

from __future__ import annotations

import numpy as np
import pytest

from probes.geometry.angles import cosine, principal_angles


def test_cosine_ignores_length_and_sees_sign() -> None:
    a, b = np.array([3.0, 0.0]), np.array([1.0, 1.0])
    assert cosine(a, b) == pytest.approx(np.sqrt(0.5))
    assert cosine(100 * a, -b) == pytest.approx(-np.sqrt(0.5))


def test_cosine_of_float16_vectors_does_not_overflow() -> None:
    a = np.full(64, 3e4, dtype=np.float16)
    assert cosine(a, a) == pytest.approx(1.0)


def test_principal_angles_of_planes_turned_by_known_angles() -> None:
    turned = np.array([[np.cos(0.3), 0, np.sin(0.3), 0], [0, np.cos(1.1), 0, np.sin(1.1)]])
    plane = np.eye(4)[:2]
    np.testing.assert_allclose(principal_angles(plane, turned), [0.3, 1.1], atol=1e-12)
    mixing = np.array([[2.0, 1.0], [-1.0, 5.0]])  # another basis of the same plane
    np.testing.assert_allclose(principal_angles(mixing @ plane, turned), [0.3, 1.1], atol=1e-12)


def test_principal_angle_of_two_lines_is_the_angle_of_their_cosine() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 16))
    (angle,) = principal_angles(a[None], b[None])
    assert np.cos(angle) == pytest.approx(abs(cosine(a, b)))


def test_a_line_and_a_plane_have_one_angle_and_small_angles_are_exact() -> None:
    tiny = 1e-10
    line = np.array([[np.cos(tiny), 0.0, np.sin(tiny)]])
    np.testing.assert_allclose(principal_angles(line, np.eye(3)[:2]), [tiny], rtol=1e-3)


def test_a_repeated_row_adds_no_angle() -> None:
    same = np.array([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    np.testing.assert_allclose(principal_angles(same, np.eye(4)[1:3]), [np.pi / 2])
    np.testing.assert_allclose(principal_angles(same, np.eye(4)[:2]), [0.0], atol=1e-12)
