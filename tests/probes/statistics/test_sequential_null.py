"""Sequential nulls: p is exact under exchangeability wherever drawing stops, and few draws decide what is clear."""

from itertools import permutations

import numpy as np
import pytest

from probes.statistics.sequential_null import DrawingRule

SIZES = [(5, 0.5), (7, 0.3), (7, 0.9)]


@pytest.mark.parametrize(("n", "alpha"), SIZES)
@pytest.mark.parametrize("ties", [False, True])
def test_p_is_exact_over_every_order_and_larger_with_ties(n: int, alpha: float, ties: bool) -> None:
    rule = DrawingRule(n, alpha)
    values = np.array(list(permutations(np.arange(n + 1) // 2 if ties else np.arange(n + 1))))
    p = np.array([rule.p(of[1:] >= of[0]) for of in values])
    shares = {a: float(np.mean(p <= a)) for a in np.unique(p)}
    assert all(share <= a + 1e-9 for a, share in shares.items())
    assert ties or shares == pytest.approx({a: a for a in shares})
    assert max(a for a in shares if a <= alpha) > alpha / 2


@pytest.mark.parametrize(
    ("n", "alpha", "exceeding", "draws", "p"),
    [
        (199, 0.05, [], 39, 1 / 40),  # half of the level, by the first look
        (199, 0.05, range(9), 9, 1),
        (199, 0.05, [3], 112, 0.0280815),
        (19, 0.05, [], 19, 1 / 20),  # no look before the last: Besag and Clifford's p, h / l at the h-th exceedance
        (19, 0.05, [6], 7, 1 / 7),
        (38, 0.1, [4, 11, 30], 31, 0.0987605),  # more than 3 / 31: by the 31st draw, 19 without any had been a stop
        (199, 0.01, [2], 199, 2 / 200),
    ],
)
def test_drawing_stops_once_decided(n: int, alpha: float, exceeding, draws: int, p: float) -> None:
    rule, exceeds = DrawingRule(n, alpha), np.isin(np.arange(n), exceeding)
    assert rule.stops(exceeds) == rule.stops(exceeds[:draws]) == draws
    assert rule.stops(exceeds[: draws - 1]) is None
    assert np.isnan(rule.p(exceeds[: draws - 1]))
    assert rule.p(exceeds) == rule.p(exceeds[:draws]) == pytest.approx(p, abs=1e-6)


def test_too_few_draws_for_a_level_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the smallest p-value of 18 draws is 0\.0526, above 0\.05"):
        DrawingRule(18, 0.05)


@pytest.mark.parametrize(("n", "alpha"), [(199, 0.05), (99, 0.05), (199, 0.01), (49, 0.025), (333, 0.1)])
def test_at_no_level_are_there_more_p_values_than_that_and_few_draws_are_needed(n: int, alpha: float) -> None:
    rule, rng = DrawingRule(n, alpha), np.random.default_rng(n)
    exceeds = rng.random((4000, n)) < rng.random(4000)[:, None]  # exchangeable: each share is as likely
    p = np.array([rule.p(each) for each in exceeds])
    levels = np.array([0.01, 0.025, 0.04, 0.05, 0.1, 0.2, 0.5, 0.8])
    shown = (p[:, None] <= levels).mean(axis=0)
    assert (shown <= levels + 3 * np.sqrt(levels / 4000)).all()
    assert shown[levels == alpha] >= 0.8 * alpha if alpha in levels else True
    for share in (0.005, 0.04, 0.3):
        each = rng.random((2000, n)) < share
        mean = np.mean([rule.stops(of) for of in each])
        assert mean == pytest.approx(rule.mean_draws(share), rel=0.05)
        assert np.mean([rule.p(of) <= alpha for of in each]) == pytest.approx(rule.power(share), abs=0.04)


@pytest.mark.parametrize(("share", "draws", "power"), [(0, 39, 1), (0.01, 68, 0.99), (0.02, 97, 0.98), (0.3, 30, 0)])
def test_what_it_saves_and_costs(share: float, draws: float, power: float) -> None:
    rule = DrawingRule(199, 0.05)
    assert rule.mean_draws(share) == pytest.approx(draws, abs=0.5)
    assert rule.power(share) == pytest.approx(power, abs=0.01)
