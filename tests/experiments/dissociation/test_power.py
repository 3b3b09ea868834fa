"""The required sample size settles a question in about four of five simulated experiments."""

from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np
import pytest

from experiments.dissociation.power import MOST, needed_for_contrast, needed_for_null, needed_for_rate, null_power
from probes.statistics.intervals import Estimate, clopper_pearson, tango_of_shares

ABOVE, BELOW, WITHIN = (0.15, inf), (-inf, 0.15), (-0.15, 0.15)
TRIALS = 2000


def pairs(both: int, only_a: int, only_b: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    counts = [both, only_a, only_b, neither]
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


def settled(draws: np.ndarray, interval: Callable[..., Estimate], where: tuple[float, float]) -> float:
    tables, times = np.unique(draws, axis=0, return_counts=True)
    found = [interval(*map(float, table)) for table in tables]
    return float(times[[where[0] < i.low and i.high < where[1] for i in found]].sum() / len(draws))


@pytest.mark.parametrize(
    ("counts", "where"),
    [
        ((10, 9, 2, 9), ABOVE),
        ((0, 8, 0, 22), ABOVE),
        ((14, 2, 2, 22), BELOW),
        ((34, 2, 4, 0), WITHIN),
        ((10, 10, 10, 10), WITHIN),
        ((18, 1, 0, 1), WITHIN),
    ],
)
def test_the_number_for_a_contrast_settles_it_in_four_of_five(counts, where) -> None:
    n = sum(counts)
    needed = needed_for_contrast(*pairs(*counts), n, where, 0.05)
    drawn = np.random.default_rng(1).multinomial(needed, np.array(counts) / n, size=TRIALS)[:, 1:3]
    assert 0.72 <= settled(drawn, lambda a, b: tango_of_shares(a / needed, b / needed, needed), where) <= 0.88


@pytest.mark.parametrize(("rate", "where"), [(0.05, BELOW), (0.1, BELOW), (0.3, ABOVE), (0.2, ABOVE)])
def test_the_number_for_a_rate_settles_it_in_four_of_five_and_half_of_it_far_less_often(rate, where) -> None:
    needed = needed_for_rate(rate, 20, where, 0.05)
    whole, half = (
        settled(np.random.default_rng(2).binomial(n, rate, size=(TRIALS, 1)), partial(clopper_pearson, n=n), where)
        for n in (needed, needed // 2)
    )
    assert 0.76 <= whole <= 0.9
    assert half < 0.6


def test_where_no_number_settles_it_the_reason_is_given() -> None:
    none, on_it = np.array([], dtype=bool), "no number would settle it: the estimate lies on the margin"
    many = f"more than {MOST} independent decliners would be needed to settle it"
    assert needed_for_rate(0.1499, 40, BELOW, 0.05) == many
    assert needed_for_contrast(none, none, 0, ABOVE, 0.05) == "nothing was measured"
    assert needed_for_contrast(*pairs(40, 17, 2, 41), 100, ABOVE, 0.05) == on_it
    assert needed_for_rate(0.15, 40, BELOW, 0.05) == on_it
    assert needed_for_null(0.2, 199, 0.05) == "no number of permuted-label directions would settle it"
    assert needed_for_null(None, None, 0.05) == "it was not compared with them"


def test_a_p_limited_by_too_few_draws_needs_more_draws() -> None:
    assert needed_for_null(0.1, 9, 0.05) == 19  # none of nine beyond the effect
    few = needed_for_null(3 / 41, 40, 0.05)  # two of forty
    assert isinstance(few, str) or null_power(2 / 40, few, 0.05) >= 0.8
