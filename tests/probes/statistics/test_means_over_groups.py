"""Means of bounded values: Wilson's for rates, coverage for others; Fieller's interval of a ratio; kappa."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from probes.statistics.intervals import agreement, wilson
from probes.statistics.means import grouped_median, mean_interval, ratio_of_means, zero_mean_score


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


def test_an_exact_ratio_has_no_width_and_a_denominator_that_may_be_zero_no_limits() -> None:
    y = np.random.default_rng(0).uniform(1, 2, 30)
    found = ratio_of_means(0.3 * y, y, np.arange(30))
    assert (found.low, found.estimate, found.high) == pytest.approx((0.3, 0.3, 0.3), abs=1e-6)
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


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.choice(["answer", "refuse", "abstain"], n, p=[0.6, 0.3, 0.1])
    return a, np.where(rng.random(n) < 0.8, a, rng.choice(["answer", "refuse", "clarify"], n))


def test_kappa_is_that_of_scikit_learn_also_with_weights() -> None:
    a, b = drawn(150)
    ones, weights = np.ones(150), np.random.default_rng(1).uniform(1, 9, 150)
    for weight in (ones, weights):
        raw, kappa = agreement(a, b, np.arange(150), weight)
        assert kappa.estimate == pytest.approx(cohen_kappa_score(a, b, sample_weight=weight))
        assert raw.estimate == pytest.approx(np.average(a == b, weights=weight))
        assert kappa.low < kappa.estimate < kappa.high


def test_unequal_weights_and_groups_widen_the_interval() -> None:
    a, b = drawn(200)
    alone, _ = agreement(a, b, np.arange(200), np.ones(200))
    grouped, _ = agreement(a, b, np.arange(200) // 4, np.ones(200))
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)


def test_full_agreement_has_a_width_and_one_label_for_all_has_no_kappa() -> None:
    a, _ = drawn(50)
    raw, kappa = agreement(a, a, np.arange(50), np.ones(50))
    assert raw.estimate == kappa.estimate == pytest.approx(1.0)
    assert kappa.low < 0.95
    same = np.repeat("answer", 50)
    raw, kappa = agreement(same, same, np.arange(50), np.ones(50))
    assert raw.low < raw.estimate == 1.0
    assert np.isnan(kappa.estimate)
    nothing = np.array([], dtype=str)
    assert np.isnan(agreement(nothing, nothing, nothing, np.array([]))[0].estimate)


def test_labels_by_chance_have_a_kappa_around_zero() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        a, b = rng.choice(["answer", "refuse"], (2, 100), p=[0.7, 0.3])
        _, kappa = agreement(a, b, np.arange(100), np.ones(100))
        covered.append(kappa.low <= 0 <= kappa.high)
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize(("n", "k"), [(5, 0), (6, 1), (10, 2), (40, 14)])
def test_a_median_lies_between_the_order_statistics_of_the_sign_test(n: int, k: int) -> None:
    """The ranks are those of printed tables of the sign test at 5 % (two-sided)."""
    values = np.random.default_rng(n).permutation(np.arange(n)).astype(float)
    found = grouped_median(np.repeat(values, 3), np.repeat(np.arange(n), 3))  # three samples a group count once
    expected = (float(k - 1), float(n - k)) if k else (-np.inf, np.inf)
    assert (found.estimate, found.low, found.high, found.n) == ((n - 1) / 2, *expected, 3 * n)


def test_the_interval_of_a_median_covers_it() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(2000):
        found = grouped_median(rng.exponential(size=25), np.arange(25))
        covered += found.low <= np.log(2) <= found.high
    assert covered / 2000 >= 0.94
    assert not grouped_median(np.zeros(0), np.zeros(0)).known
