"""Means of bounded values: Wilson's interval for rates, coverage for others, valid if all values are equal."""

import numpy as np
import pytest

from probes.statistics.bounded_mean import mean_interval, zero_mean_score
from probes.statistics.intervals import wilson


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (1, 9), (7, 31), (20, 20)])
def test_of_zeros_and_ones_it_is_wilson_s(hits: int, n: int) -> None:
    found, known = mean_interval(np.arange(n) < hits, 0, 1), wilson(hits, n)
    assert (found.estimate, found.low, found.high) == pytest.approx((known.estimate, known.low, known.high), abs=1e-7)


def test_moving_and_scaling_the_values_moves_and_scales_the_interval() -> None:
    values = np.random.default_rng(0).choice([0, 0.5, 1], 40, p=[0.6, 0.3, 0.1])
    found, moved = mean_interval(values, 0, 1), mean_interval(3 * values - 2, -2, 1)
    assert (moved.low, moved.high) == pytest.approx((3 * found.low - 2, 3 * found.high - 2), abs=1e-6)


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0])
def test_agreement_leaves_an_interval(value: float) -> None:
    found = mean_interval(np.full(30, value), -1, 1)
    assert found.estimate == value
    assert found.high - found.low > 0.05
    assert found.low <= value <= found.high


def test_values_between_the_bounds_narrow_it() -> None:
    """Half the spread of zeros and ones, so about half as wide: it is no interval of rates."""
    n = 200
    half, full = (mean_interval(np.where(np.arange(n) % 2, 0.5 + s, 0.5 - s), 0, 1) for s in (0.25, 0.5))
    assert half.high - half.low == pytest.approx((full.high - full.low) / 2, rel=0.05)


def test_no_values_give_the_widest_interval() -> None:
    found = mean_interval(np.array([]), -1, 1)
    assert np.isnan(found.estimate)
    assert (found.low, found.high) == (-1, 1)


@pytest.mark.parametrize("p", [[0.9, 0.1, 0.0], [0.05, 0.9, 0.05], [0.4, 0.2, 0.4], [0.02, 0.97, 0.01]])
@pytest.mark.parametrize("n", [20, 80])
def test_coverage(p: list[float], n: int) -> None:
    """Changes of decisions: -1, 0 or 1 a group."""
    rng, values = np.random.default_rng(n), np.array([-1.0, 0.0, 1.0])
    mean = values @ p
    counts = rng.multinomial(n, p, 4000)
    low, high = np.full(4000, -1 - mean), np.full(4000, 1 - mean)
    score = n * zero_mean_score(np.broadcast_to(values - mean, counts.shape), counts / n, low, high)
    assert (score <= 3.8415).mean() >= 0.93


@pytest.mark.parametrize(("value", "n"), [(-0.8, 6), (0.1, 3), (1 / 3, 7)])
def test_equal_values_have_an_interval_though_their_mean_is_off_by_rounding(value: float, n: int) -> None:
    found = mean_interval(np.full(n, value), -1.0, 1.0)
    assert found.low < found.estimate == value < found.high
