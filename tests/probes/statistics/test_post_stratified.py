"""Rates from a guess for all and the truth for some: closed forms, and coverage at rates near zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulations.judge_error import ERRORS, ICCS, INTERVALS, LABELS, RATES, coverage
from probes.statistics.intervals import clopper_pearson
from probes.statistics.post_stratified import Stratum, draws_to_halve, post_stratified_rate
from tests.support.draws import draws

MANY = 1e9  # groups of all samples, so that only the drawn ones limit the interval
counts = st.integers(min_value=1, max_value=200)
shares = st.floats(min_value=0, max_value=1)


def width(strata: list[Stratum], n_groups: float) -> float:
    interval = post_stratified_rate(strata, n_groups)
    return interval.high - interval.low


@given(true=counts, false=counts, correct=shares, missed=shares)
def test_the_estimate_is_that_of_prediction_powered_inference(true, false, correct, missed) -> None:
    """Where the drawn samples have the guessed share of all: mean(guess) - mean(guess - truth)."""
    share = true / (true + false)
    mean_error = (true * (1 - correct) - false * missed) / (true + false)
    strata = [Stratum(share, correct, true), Stratum(1 - share, missed, false)]
    assert post_stratified_rate(strata, MANY).estimate == pytest.approx(share - mean_error, abs=1e-12)


@given(share=shares, means=st.tuples(shares, shares), n=st.tuples(counts, counts), groups=counts)
def test_the_interval_is_ordered_and_within_0_and_1(share, means, n, groups) -> None:
    found = post_stratified_rate([Stratum(share, means[0], n[0]), Stratum(1 - share, means[1], n[1])], groups)
    assert 0 <= found.low <= found.estimate + 1e-9
    assert found.estimate - 1e-9 <= found.high <= 1
    assert found.low < found.high


def test_no_seen_error_leaves_a_width_that_shrinks_with_the_number_drawn() -> None:
    widths = [width([Stratum(0.1, 1.0, n / 10), Stratum(0.9, 0.0, 9 * n / 10)], MANY) for n in (50, 100, 300, 3000)]
    assert widths == sorted(widths, reverse=True)
    assert 0.02 < widths[1] < width([Stratum(1.0, 0.1, 100)], MANY)
    assert widths[-1] > 0


def test_a_useless_guess_gives_about_the_interval_of_the_drawn_samples_alone() -> None:
    found = post_stratified_rate([Stratum(0.5, 0.2, 100), Stratum(0.5, 0.2, 100)], MANY)
    alone = clopper_pearson(40, 200)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=0.003)


def test_if_everything_is_drawn_the_groups_of_all_samples_limit_the_interval() -> None:
    """A right guess for all: the interval is about that of the rate, and the number drawn does not matter."""
    found = post_stratified_rate([Stratum(0.3, 1.0, 3e5), Stratum(0.7, 0.0, 7e5)], 100)
    rate = clopper_pearson(30, 100)
    assert (found.low, found.high) == pytest.approx((rate.low, rate.high), abs=1e-3)


def test_a_small_stratum_that_a_random_draw_missed_is_joined_and_a_large_one_is_not() -> None:
    joined = post_stratified_rate([Stratum(0.01, 0.0, 0), Stratum(0.99, 0.02, 100)], MANY)
    whole = post_stratified_rate([Stratum(1.0, 0.02, 100)], MANY)
    assert joined == whole
    missed = post_stratified_rate([Stratum(0.4, 0.0, 0), Stratum(0.6, 0.02, 100)], MANY)
    assert np.isnan(missed.estimate)
    assert (missed.low, missed.high) == (0.0, 1.0)
    assert np.isnan(post_stratified_rate([Stratum(0.5, 0, 0), Stratum(0.5, 0, 0)], MANY).estimate)
    assert post_stratified_rate([Stratum(0.0, 0.0, 0), Stratum(1.0, 0.02, 100)], MANY) == whole


def test_as_many_draws_as_it_says_halve_the_interval_and_none_where_all_are_too_few() -> None:
    strata = [Stratum(0.2, 0.9, 20), Stratum(0.8, 0.05, 80)]
    found = draws_to_halve(strata, 100_000, 100, 100_000)
    assert found is not None
    assert 300 < found < 500  # a width falls with the root of the number
    more = [Stratum(s.share, s.mean, s.n * found / 100) for s in strata]
    assert width(more, 100_000) == pytest.approx(width(strata, 100_000) / 2, rel=0.01)
    grouped = draws_to_halve(strata, 25_000, 100, 100_000)
    assert grouped is not None
    assert grouped > found  # later draws share groups with earlier ones
    assert draws_to_halve([Stratum(0.2, 0.9, 20), Stratum(0.8, 0.05, 80)], 120, 100, 120) is None
    assert draws_to_halve([Stratum(0.2, 0.9, 20), Stratum(0.8, 0.05, 80)], 100, 100, 100) is None


@draws(20, 500)
@pytest.mark.parametrize("n_labels", LABELS)
@pytest.mark.parametrize("judge", ERRORS)
def test_the_interval_covers_and_is_narrower_than_without_the_judge(judge: str, n_labels: int, n_draws: int) -> None:
    """At least 93 % at rates 0 to .2, for judges right for 80 to 99 % of rows, or missing half of what is true."""
    least = 0.93 - 3 * np.sqrt(0.95 * 0.05 / n_draws)
    for rate in RATES:
        ways = ("post-stratified", "labels only")
        cells = [coverage(rate, ERRORS[judge], icc, n_labels, n_draws, ways) for icc in ICCS]
        assert min(cell["post-stratified"][0] for cell in cells) >= (0.93 if n_draws > 400 else least)
        for cell in cells:
            assert cell["post-stratified"][1] <= 1.03 * cell["labels only"][1]


def test_the_normal_interval_does_not_cover_where_no_labelled_row_disagrees() -> None:
    """The control: what the project would print without the added samples."""
    names = ("post-stratified", "normal")
    found = coverage(0.01, ERRORS["misses half"], 0.0, 100, 60, names)
    assert found["normal"][0] < 0.8 < 0.93 < found["post-stratified"][0]
    assert set(names) <= set(INTERVALS)
