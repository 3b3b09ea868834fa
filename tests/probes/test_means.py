"""Difference in means: equal to NumPy's, within strata, and accurate under a common offset."""

from __future__ import annotations

import numpy as np
import pytest

from probes.direction import cosine
from probes.means import difference_in_means, same_means, unit


def _planted(rng: np.random.Generator, n: int = 400, d: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    direction = unit(rng.standard_normal(d))
    y = np.arange(n) % 2 == 0
    return rng.standard_normal((n, d)) + 3.0 * y[:, None] * direction, y, direction


def test_a_planted_direction_is_recovered_and_shuffled_labels_do_not_recover_it() -> None:
    rng = np.random.default_rng(1)
    X, y, direction = _planted(rng)
    assert cosine(difference_in_means(X, y), direction) > 0.97
    assert max(abs(cosine(difference_in_means(X, rng.permutation(y)), direction)) for _ in range(20)) < 0.7


def test_float32_under_a_large_offset_is_accumulated_in_float64_and_float16_does_not_overflow() -> None:
    rng = np.random.default_rng(2)
    n = 200_000
    y = np.arange(n) % 2 == 0
    X = (rng.standard_normal((n, 2)) + 1e4).astype(np.float32)
    exact = X[y].astype(np.float64).mean(0) - X[~y].astype(np.float64).mean(0)
    np.testing.assert_allclose(difference_in_means(X, y), exact, atol=1e-9)
    in_float32 = np.cumsum(X[y], axis=0, dtype=np.float32)[-1] / np.float32(y.sum())  # the control: it does matter
    assert np.abs(in_float32 - X[y].astype(np.float64).mean(0)).max() > 1e-3
    X = np.full((1000, 3), 60_000, dtype=np.float16)
    X[::2] = 30_000
    y = np.arange(1000) % 2 == 1
    np.testing.assert_allclose(difference_in_means(X, y), float(np.float16(60_000)) - 30_000)


def test_strata_cancel_what_distinguishes_them() -> None:
    rng = np.random.default_rng(3)
    X, _, direction = _planted(rng, n=2000)
    strata = np.repeat(["code", "people"], 1000)
    y = rng.random(2000) < np.where(strata == "code", 0.9, 0.1)  # one stratum is mostly positive
    offset = 20 * unit(rng.standard_normal(X.shape[1]))
    X = rng.standard_normal(X.shape) + 3.0 * y[:, None] * direction + (strata == "code")[:, None] * offset
    assert cosine(difference_in_means(X, y, strata), direction) > 0.97
    assert cosine(difference_in_means(X, y), direction) < 0.5


def test_strata_are_weighted_by_the_inverse_variance_of_their_difference() -> None:
    X = np.array([[10.0], [0.0], [1.0], [2.0], [3.0], [0.0], [100.0]])
    y = np.array([True, False, True, True, True, False, True])
    strata = ["a", "a", "b", "b", "b", "b", "alone"]
    weights = {"a": 1 / 2, "b": 3 / 4}
    expected = (weights["a"] * 10 + weights["b"] * 2) / sum(weights.values())
    np.testing.assert_allclose(difference_in_means(X, y, strata), [expected])


def test_one_stratum_is_none_and_no_usable_stratum_falls_back_to_the_plain_difference() -> None:
    X, y, _ = _planted(np.random.default_rng(4))
    plain = difference_in_means(X, y)
    np.testing.assert_allclose(difference_in_means(X, y, ["one"] * len(y)), plain)
    np.testing.assert_allclose(difference_in_means(X, y, np.where(y, "declined", "answered")), plain)


@pytest.mark.parametrize("n", [0, 4])
def test_an_empty_class_is_an_error(n: int) -> None:
    with pytest.raises(ValueError, match=f"needs both classes; got {n} positive of 4"):
        difference_in_means(np.zeros((4, 2)), np.arange(4) < n)


@pytest.mark.parametrize("vector", [np.zeros(3), np.array([np.nan, 1.0]), np.array([np.inf, 1.0])])
def test_nothing_to_normalise_is_an_error(vector: np.ndarray) -> None:
    with pytest.raises(ValueError, match="the two classes have the same mean"):
        unit(vector)


def test_means_that_differ_by_rounding_only_are_the_same() -> None:
    rng = np.random.default_rng(0)
    y, token = np.arange(40) % 2 == 1, rng.standard_normal(8)
    X = np.tile(token, (40, 1)).astype(np.float32)
    assert same_means(X, y)
    assert same_means(X + (1e-8 * y[:, None]), y)
    assert not same_means(X + (1e-3 * y[:, None]), y)
