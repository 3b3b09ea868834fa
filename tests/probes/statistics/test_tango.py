"""Tango's interval: compared with a restricted maximum found by search, at 0 and 1, and for one-sided limits."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from probes.statistics.intervals import lies_within, tango, tango_of_shares, tango_score, wilson


def by_search(only_a: int, only_b: int, n: int, difference: float) -> float:
    rest = n - only_a - only_b

    def unlikely(q: float) -> float:
        shares = np.maximum(1e-300, [q + difference, q, 1 - 2 * q - difference])
        return -float(np.array([only_a, only_b, rest]) @ np.log(shares))

    least, most = max(0.0, -difference), (1 - difference) / 2
    q = minimize_scalar(unlikely, bounds=(least, most), method="bounded", options={"xatol": 1e-12}).x
    return (only_a - only_b - n * difference) / np.sqrt(n * (2 * q + difference - difference**2))


@pytest.mark.parametrize(("only_a", "only_b", "n"), [(12, 2, 50), (5, 1, 41), (40, 20, 160), (3, 9, 20)])
def test_limits_are_where_the_score_test_rejects(only_a: int, only_b: int, n: int) -> None:
    interval = tango_of_shares(only_a / n, only_b / n, n)
    assert by_search(only_a, only_b, n, interval.low) == pytest.approx(norm.ppf(0.975), abs=1e-3)
    assert by_search(only_a, only_b, n, interval.high) == pytest.approx(-norm.ppf(0.975), abs=1e-3)
    for difference in (-0.4, 0.0, 0.15, 0.5):
        expected = by_search(only_a, only_b, n, difference)
        assert tango_score(only_a / n, only_b / n, n, difference) == pytest.approx(expected, abs=1e-3)


def test_at_zero_the_test_is_mcnemars_and_without_discordant_pairs_the_limits_are_wilsons() -> None:
    assert tango_score(12 / 50, 2 / 50, 50, 0.0) == pytest.approx((12 - 2) / np.sqrt(12 + 2))
    for n in (1, 7, 30, 1000):
        interval = tango_of_shares(0.0, 0.0, n)
        assert (interval.low, interval.high) == pytest.approx((-wilson(0, n).high, wilson(0, n).high), abs=1e-8)


def test_limits_hold_the_estimate_turn_round_and_never_collapse() -> None:
    for a, b in [(1, 0), (0, 0), (0.999, 0.001), (0.5, 0.5), (0.3, 0.1), (1e-9, 0)]:
        for n in (1, 4.9, 60, 1e5):
            there, back = tango_of_shares(a, b, n), tango_of_shares(b, a, n)
            assert -1 <= there.low <= there.estimate <= there.high <= 1
            assert there.low < there.high
            assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-8)


def test_repeated_subjects_counted_by_group_change_nothing() -> None:
    a, b = np.repeat([1, 1, 0, 0], [11, 7, 2, 5]), np.repeat([1, 0, 1, 0], [11, 7, 2, 5])
    once, twice = tango(a, b), tango(np.repeat(a, 4), np.repeat(b, 4), n=25)
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high))
    assert np.isnan(tango(np.array([]), np.array([])).estimate)


def test_the_shortcut_agrees_with_the_interval() -> None:
    rng = np.random.default_rng(0)
    a, b, _ = rng.dirichlet([1, 1, 2], 300).T
    for where in [(0.15, np.inf), (-np.inf, 0.15), (-0.15, 0.15)]:
        intervals = [tango_of_shares(x, y, 80) for x, y in zip(a, b, strict=True)]
        expected = [where[0] < i.low and i.high < where[1] for i in intervals]
        assert lies_within(a, b, 80, where).tolist() == expected


@pytest.mark.parametrize("n", [25, 35, 45, 55])
def test_one_limit_by_itself_misses_in_at_most_five_per_cent(n: int) -> None:
    """Exactly, where pairs disagree one way only; Newcombe's method 10 misses in 7 to 8 % at these numbers."""
    for difference in (0.05, 0.15, 0.5, 0.85):
        highs = np.array([tango_of_shares(k / n, 0.0, n).high for k in range(n + 1)])
        lows = np.array([tango_of_shares(k / n, 0.0, n).low for k in range(n + 1)])
        chance = binom.pmf(np.arange(n + 1), n, difference)
        assert chance[highs < difference].sum() <= 0.05
        assert chance[lows > difference].sum() <= 0.05
