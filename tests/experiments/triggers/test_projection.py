"""Projections in units that are valid for requests not used to fit the direction."""

import numpy as np
import pytest

from experiments.triggers.projection import DirectionSpec, project

RNG = np.random.default_rng(0)


def spec(n: int) -> DirectionSpec:
    """Train on the first n prompts, set units on the next n; every second one is of the positive class."""
    y = np.arange(n) % 2 == 0
    return DirectionSpec("refusing", np.arange(n), y, np.arange(n, 2 * n), y)


def streams(n: int, d: int, gap: float) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 2 == 0
    direction = RNG.standard_normal(d)
    return RNG.standard_normal((n, d)) + np.outer(y, gap * direction / np.linalg.norm(direction)), y


@pytest.mark.parametrize("d", [8, 1000])
def test_classes_of_other_requests_lie_at_zero_and_one(d) -> None:
    """Also with more dimensions than training requests, where these lie far apart along what is fitted on them."""
    n = 100
    X, y = streams(40 * n, d, 3.0)
    along = project(X, spec(n))
    others = np.arange(len(X)) >= 2 * n
    assert along[others & y].mean() == pytest.approx(1, abs=0.25)
    assert along[others & ~y].mean() == pytest.approx(0, abs=0.25)
    if d == 1000:  # in units of the training means they would be a fraction of it apart
        fitted = along[:n][y[:n]].mean() - along[:n][~y[:n]].mean()
        assert fitted > 3


def test_a_direction_that_tells_nothing_of_other_requests_has_no_units() -> None:
    n = 60
    X, y = streams(2 * n, 50, 3.0)
    X[n:] = X[n:] - 6 * np.outer(y[n:], X[:n][y[:n]].mean(0) - X[:n][~y[:n]].mean(0))  # the other way round there
    assert project(X, spec(n)) is None
    assert project(np.ones((2 * n, 50)), spec(n)) is None
