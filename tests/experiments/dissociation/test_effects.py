"""Intervals of onset effects over groups: sign, and no spread from one group."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from experiments.dissociation.effects import onset_effect_interval


def test_the_effect_is_how_far_the_log_odds_fall() -> None:
    before, after = np.array([5.0, 4.0, 6.0]), np.array([-1.0, -3.0, -3.0])
    interval = onset_effect_interval(before, after, np.arange(3), 0.05)
    limits = ttest_1samp(before - after, 0).confidence_interval()
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((22 / 3, limits.low, limits.high))


def test_a_rise_is_a_negative_effect() -> None:
    assert onset_effect_interval(np.zeros(3), np.array([1.0, 2.0, 3.0]), np.arange(3), 0.05).high < 2.0
    assert onset_effect_interval(np.zeros(3), np.array([9.0, 9.1, 9.2]), np.arange(3), 0.05).high < 0


def test_one_group_or_none_gives_an_unbounded_interval() -> None:
    one = onset_effect_interval(np.ones(4), np.zeros(4), np.zeros(4), 0.05)
    none = onset_effect_interval(np.array([]), np.array([]), np.array([]), 0.05)
    assert (one.estimate, one.low, one.high) == (1.0, -np.inf, np.inf)
    assert np.isnan(none.estimate)
    assert (none.low, none.high) == (-np.inf, np.inf)
