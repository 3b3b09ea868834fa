"""Intervals cover: textbook values, simulated coverage, and no collapse at 0 and 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm, ttest_1samp

from probes.statistics.intervals import (
    NO_ESTIMATE,
    Estimate,
    auroc_interval,
    clopper_pearson,
    combination,
    effective_number,
    grouped_mean,
    wilson,
)
from probes.statistics.metrics import aurocs


def _covers(interval: Estimate, truth: float) -> bool:
    return interval.low <= truth <= interval.high


# Newcombe 1998, Stat Med 17:857, table I: 81/263, 15/148, 0/20 and 1/29 at 95 %.
@pytest.mark.parametrize(
    ("rate", "hits", "n", "low", "high"),
    [
        (wilson, 81, 263, 0.2553, 0.3662),
        (wilson, 15, 148, 0.0624, 0.1605),
        (wilson, 0, 20, 0.0, 0.1611),
        (wilson, 1, 29, 0.0061, 0.1718),
        (clopper_pearson, 81, 263, 0.2527, 0.3676),
        (clopper_pearson, 15, 148, 0.0578, 0.1617),
        (clopper_pearson, 0, 20, 0.0, 0.1684),
        (clopper_pearson, 1, 29, 0.0009, 0.1776),
    ],
)
def test_published_intervals_of_a_rate(rate: Callable, hits: int, n: int, low: float, high: float) -> None:
    interval = rate(hits, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5.1e-5)
    assert interval.estimate == hits / n


@pytest.mark.parametrize(("rate", "method"), [(clopper_pearson, "exact"), (wilson, "wilson")])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_scipy_gives_the_same_limits(rate: Callable, method: str, alpha: float) -> None:
    for n in (1, 2, 7, 40):
        for hits in range(n + 1):
            expected = binomtest(hits, n).proportion_ci(1 - alpha, method=method)
            interval = rate(hits, n, alpha)
            assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_rules_of_three_hold_for_zero_failures() -> None:
    """With n failures-free prompts the one-sided limit is alpha^(1/n): 59 certify 5 %, 149 certify 2 % (METHODS.md)."""
    assert clopper_pearson(0, 59, alpha=0.10).high <= 0.05 < clopper_pearson(0, 58, alpha=0.10).high
    assert clopper_pearson(0, 149, alpha=0.10).high <= 0.02 < clopper_pearson(0, 148, alpha=0.10).high


@pytest.mark.parametrize("rate", [clopper_pearson, wilson])
def test_limits_reach_the_ends_never_collapse_and_are_wider_with_fewer_units_or_none(rate: Callable) -> None:
    for n in range(1, 300):
        none, every = rate(0, n), rate(n, n)
        assert none.low == 0.0 < none.high
        assert every.low < 1.0 == every.high
    interval = rate(0, 0)
    assert np.isnan(interval.estimate)
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert all(np.isnan(limit) for limit in (NO_ESTIMATE.estimate, NO_ESTIMATE.low, NO_ESTIMATE.high))
    few, many = rate(0.3 * 12.5, 12.5), rate(0.3 * 100, 100)
    assert few.estimate == pytest.approx(many.estimate)
    assert few.low < many.low < many.high < few.high


@pytest.mark.parametrize(("rate", "least"), [(clopper_pearson, 0.95), (wilson, 0.83)])
def test_exact_coverage_of_a_rate(rate: Callable, least: float) -> None:
    """Clopper–Pearson never falls below its level; Wilson's does near the ends, and is right on average."""
    covered = []
    for n in (10, 30):
        limits = np.array([(i.low, i.high) for i in (rate(k, n) for k in range(n + 1))])
        for p in np.linspace(0, 1, 201):
            inside = (limits[:, 0] <= p) & (p <= limits[:, 1])
            covered.append(binom.pmf(np.arange(n + 1), n, p)[inside].sum())
    assert min(covered) >= least - 1e-9
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize("sizes", [[15, 15] + [1] * 30, [1, 1, 2, 2, 3, 3, 5, 8, 13, 20], [5] * 20])
def test_grouped_means_cover_for_any_group_sizes(sizes: list[int]) -> None:
    """Two large groups beside many small ones are the worst: residuals that are not jackknifed cover 89 % there."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    drawn = rng.standard_normal((1000, len(sizes)))[:, groups]
    assert np.mean([_covers(grouped_mean(values, groups), 0.0) for values in drawn]) >= 0.93
    by_row = [_covers(grouped_mean(values, np.arange(len(values))), 0.0) for values in drawn]
    assert np.mean(by_row) < 0.75  # the control


def test_one_value_a_group_gives_students_interval() -> None:
    values = np.random.default_rng(1).exponential(size=9)
    limits, interval = ttest_1samp(values, 0).confidence_interval(0.9), grouped_mean(values, np.arange(9), 0.1)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((values.mean(), limits.low, limits.high))


def test_one_rate_is_itself_a_negative_weight_turns_it_round_and_a_difference_is_newcombes() -> None:
    rate = wilson(3, 17)
    for weight in (1.0, 0.5):
        interval = combination([weight], [rate])
        assert (interval.low, interval.high) == pytest.approx((weight * rate.low, weight * rate.high))
    turned = combination([-1.0], [rate])
    assert (turned.low, turned.high) == pytest.approx((-rate.high, -rate.low))
    # newcombe 1998, Stat Med 17:873, example (a): 56/70 - 48/80, method 10
    interval = combination([1, -1], [wilson(56, 70), wilson(48, 80)])
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


@pytest.mark.parametrize(
    "rates",
    [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0), (0.5, 0.95, 0.02, 0.9), (0.5, 0.5, 0.5, 0.5), (1.0, 0.5, 1.0, 0.02)],
)
@pytest.mark.parametrize("n", [15, 60])
def test_main_effects_of_four_rates_cover(rates: tuple[float, ...], n: int) -> None:
    weights = [0.5, 0.5, -0.5, -0.5]
    truth = float(np.dot(weights, rates))
    single = [wilson(k, n) for k in range(n + 1)]
    drawn = np.random.default_rng(n).binomial(n, rates, size=(2000, 4))
    covered = [_covers(combination(weights, [single[k] for k in row]), truth) for row in drawn]
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize("truth", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize(("n_positive", "n_negative"), [(5, 5), (10, 40), (25, 25)])
def test_auroc_intervals_cover_normal_scores(truth: float, n_positive: int, n_negative: int) -> None:
    rng = np.random.default_rng(n_negative)
    y = np.repeat([True, False], [n_positive, n_negative])
    scores = rng.standard_normal((len(y), 4000)) + np.sqrt(2) * norm.ppf(truth) * y[:, None]
    seen, which = np.unique(np.round(aurocs(scores.T, y), 9), return_inverse=True)
    covered = np.array([_covers(auroc_interval(a, n_positive, n_negative), truth) for a in seen])[which]
    assert covered.mean() >= 0.92


def test_auroc_intervals_of_clustered_scores_cover_only_by_groups() -> None:
    """Each group repeats its one score six times: counting rows as units makes the interval far too short."""
    rng, copies, n = np.random.default_rng(0), 6, 12
    y = np.repeat([True, False], n)
    estimates = aurocs((rng.standard_normal((2 * n, 1000)) + np.sqrt(2) * norm.ppf(0.8) * y[:, None]).T, y)
    by_group = np.mean([_covers(auroc_interval(a, n, n), 0.8) for a in estimates])
    by_row = np.mean([_covers(auroc_interval(a, n * copies, n * copies), 0.8) for a in estimates])
    assert by_group >= 0.93
    assert by_row < 0.75


def test_auroc_intervals_never_collapse() -> None:
    for n in (1, 2, 5, 100, 10_000):
        perfect, inverted = auroc_interval(1.0, n, n), auroc_interval(0.0, n, n)
        assert perfect.low < 1.0 == perfect.high
        assert inverted.low == 0.0 < inverted.high
    assert auroc_interval(1.0, 20, 20).low < 0.93


@pytest.mark.parametrize("auroc", [0.0, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-12, 1.0])
def test_auroc_intervals_hold_their_estimate_and_are_symmetric(auroc: float) -> None:
    interval, mirrored = auroc_interval(auroc, 7, 30), auroc_interval(1 - auroc, 7, 30)
    assert _covers(interval, auroc)
    assert (interval.low, interval.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low), abs=1e-6)


@pytest.mark.parametrize(("auroc", "n_positive"), [(0.9, 0), (float("nan"), 10)])
def test_an_undefined_auroc_gives_the_widest_interval(auroc: float, n_positive: int) -> None:
    interval = auroc_interval(auroc, n_positive, 10)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_equal_groups_count_as_many_as_they_are_and_one_large_one_as_little_more_than_itself() -> None:
    assert effective_number(np.full(20, 5)) == 20
    assert effective_number(np.array([1000, 1])) == pytest.approx(1, abs=0.01)
    assert effective_number(np.array([])) == 0


def test_correlated_terms_add_in_a_sum_and_cancel_in_a_difference() -> None:
    rate, together = clopper_pearson(6, 20), np.ones((2, 2))
    total = combination([0.5, 0.5], [rate, rate], together)
    gap = combination([1, -1], [rate, rate], -together + 2 * np.eye(2))
    assert (total.low, total.high) == pytest.approx((rate.low, rate.high))
    assert gap.high - gap.low == pytest.approx(2 * (rate.high - rate.low))
    apart = combination([0.5, 0.5], [rate, rate])
    assert apart.high - apart.low == pytest.approx((rate.high - rate.low) / 2**0.5)
    same = combination([1, -1], [Estimate(0.5, 0.4, 0.6)] * 2, together)
    assert same.high - same.low == pytest.approx(0)
