"""The required sample size settles a question in four of five experiments; p values of the permuted-label null."""

import json
from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np
import pytest

from experiments.dissociation.onset_null import sequential_null
from experiments.dissociation.power import MOST, needed_for_contrast, needed_for_null, needed_for_rate, null_power
from experiments.dissociation.results import NullRecord
from probes.statistics.intervals import Estimate, clopper_pearson, tango_of_shares
from probes.statistics.sequential import DrawingRule

ABOVE, BELOW, WITHIN = (0.15, inf), (-inf, 0.15), (-0.15, 0.15)
TRIALS = 2000
NAN, INF = float("nan"), float("inf")


def pairs(both: int, only_a: int, only_b: int, neither: int) -> tuple[float, float]:
    n = both + only_a + only_b + neither
    return only_a / n, only_b / n


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


def test_where_no_number_settles_it_the_reason_is_given_and_too_few_draws_need_more() -> None:
    on_it = "no number would settle it: the estimate lies on the margin"
    many = f"more than {MOST} independent decliners would be needed to settle it"
    assert needed_for_rate(0.1499, 40, BELOW, 0.05) == many
    assert needed_for_contrast(NAN, NAN, 0, ABOVE, 0.05) == "nothing was measured"
    assert needed_for_contrast(*pairs(40, 17, 2, 41), 100, ABOVE, 0.05) == on_it
    assert needed_for_rate(0.15, 40, BELOW, 0.05) == on_it
    assert needed_for_null(39, 199, 0.05) == "no number of permuted-label directions would settle it"
    assert needed_for_null(0, None, 0.05) == "it was not compared with them"
    assert needed_for_null(0, 9, 0.05) == 19  # none of nine beyond the effect
    few = needed_for_null(2, 40, 0.05)  # stopped at the second of forty: one of 39 before it
    assert isinstance(few, int)
    assert null_power(1 / 39, few, 0.05) >= 0.8 > null_power(1 / 39, few - 1, 0.05)
    assert needed_for_null(2, 4, 0.05) == "no number of permuted-label directions would settle it"
    too_few = "2 of 20 exceed it, too few to tell whether more permuted-label directions would settle it"
    assert needed_for_null(2, 20, 0.05) == too_few


@pytest.mark.parametrize(
    ("observed", "drawn", "p"),
    [
        (3.0, (1.0, 3.0, 5.0, 2.0), 3 / 5),  # the direction itself and ties count
        (3.0, (1.0, 2.0, 4.0), 0.5),
        (3.0, (1.0, 2.0), 1 / 3),
        (NAN, (1.0, 2.0, 4.0), 1.0),  # what is not finite never makes an effect rarer
        (INF, (1.0, 2.0, 4.0), 1.0),
        (3.0, (1.0, NAN, 2.0), 0.5),
        (3.0, (1.0, -INF, 2.0), 0.5),
    ],
)
def test_p_counts_the_direction_itself_and_never_what_is_not_finite_for_it(observed, drawn, p) -> None:
    assert NullRecord.of(observed, drawn).p == NullRecord.of(observed, drawn, n_labellings=1000).p == pytest.approx(p)
    few = NullRecord.of(observed, drawn, n_labellings=999)
    assert np.isnan(few.p)
    assert few.tested()[:3] == (None, len(drawn), 999)


def test_what_is_not_finite_is_null_in_json() -> None:
    null = NullRecord.of(3.0, (1.0, NAN, 5.123456, INF))
    assert null.drawn == (1.0, None, 5.1235, None)
    assert null.null_95th_percentile is None
    assert NullRecord.model_validate_json(json.dumps(null.to_dict(), allow_nan=False)) == null


def test_the_null_does_not_depend_on_the_order_in_which_workers_answer() -> None:
    rule, rng = DrawingRule(60, 0.05), np.random.default_rng(0)
    falls = {"normative": rng.standard_normal(60), "epistemic": rng.standard_normal(60)}
    parts = [
        ([f"direction {i}" for i in range(at, at + 20)], {b: of[at : at + 20] for b, of in falls.items()})
        for at in (0, 20, 40)
    ]
    observed = {"normative": 9.0, "epistemic": -9.0}  # beyond all; beyond none
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        steps = list(sequential_null(iter([(i, parts[i]) for i in order]), observed, np.inf, rule))
        assert [names for names, _ in steps] == [names for names, _ in parts]
        settled = [[null[b].settled for b in falls] for _, null in steps]
        assert settled == [[False, True], [True, True], [True, True]]
        own, cross = (steps[1][1][b] for b in falls)
        assert (own.p, own.n, own.n_exceeding, len(own.drawn)) == (1 / 40, 39, 0, 40)
        assert (cross.p, cross.n, cross.n_exceeding) == (1.0, 2, 2)
        assert np.isnan(steps[0][1]["normative"].p)
    _, few = next(sequential_null(iter([(0, parts[0])]), observed, 999, rule))
    assert all(null.settled and np.isnan(null.p) for null in few.values())
