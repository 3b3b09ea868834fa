"""Fieller's interval for a ratio of means."""

import numpy as np
import pytest

from probes.statistics.ratio import ratio_of_means


def test_an_exact_ratio_has_no_width() -> None:
    y = np.random.default_rng(0).uniform(1, 2, 30)
    found = ratio_of_means(0.3 * y, y, np.arange(30))
    assert (found.low, found.estimate, found.high) == pytest.approx((0.3, 0.3, 0.3), abs=1e-6)


def test_a_denominator_that_may_be_zero_gives_an_unbounded_interval() -> None:
    rng = np.random.default_rng(0)
    found = ratio_of_means(rng.standard_normal(20), rng.standard_normal(20), np.arange(20))
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert ratio_of_means(np.ones(3), np.ones(3), np.zeros(3)).high == np.inf  # one group


def test_prompts_of_one_group_count_once() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, 12), rng.uniform(1, 2, 12)
    alone = ratio_of_means(x, y, np.arange(12))
    again = ratio_of_means(np.repeat(x, 5), np.repeat(y, 5), np.repeat(np.arange(12), 5))
    assert again == pytest.approx(alone) if isinstance(alone, tuple) else vars(again) == pytest.approx(vars(alone))


def test_it_covers_the_true_ratio_at_the_nominal_rate() -> None:
    rng, held = np.random.default_rng(3), 0
    for _ in range(600):
        y = rng.normal(2, 1, 25)
        x = 0.4 * y + rng.normal(0, 0.5, 25)
        found = ratio_of_means(x, y, np.arange(25))
        held += found.low <= 0.4 <= found.high
    assert 0.925 <= held / 600 <= 0.975
