"""Looks share one level, and intervals cover whenever one stops; nulls have an exact p wherever drawing stops."""

from itertools import permutations

import numpy as np
import pytest
from scipy.special import ndtri

from benchmarks.simulations.clustered import rates
from probes.statistics.intervals import clopper_pearson, mean_over_groups, tango_of_shares
from probes.statistics.sequential import DrawingRule, look_level

# -- looks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [(1.0,), (0.4, 1.0), (0.3, 0.6, 1.0), (0.9, 1.0), (0.2, 0.3, 0.31)])
def test_looks_together_spend_the_level_of_their_information(looks: tuple[float, ...]) -> None:
    steps = np.random.default_rng(0).standard_normal((100_000, len(looks))) * np.sqrt(np.diff((0, *looks)))
    limits = [-ndtri(look_level(looks[: i + 1], 0.05) / 2) for i in range(len(looks))]
    beyond = np.abs(steps.cumsum(axis=1) / np.sqrt(looks)) >= limits
    for i, look in enumerate(looks):
        assert beyond[:, : i + 1].any(axis=1).mean() == pytest.approx(0.05 * look**1.5, abs=0.002)
    assert look_level(looks[:1], 0.05) == pytest.approx(0.05 * looks[0] ** 1.5, rel=1e-6)


@pytest.mark.parametrize("looks", [(), (0.0, 1.0), (0.5, 0.5), (0.5, 0.4), (0.5, 1.1)])
def test_looks_without_new_information_are_refused(looks: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="the shares of information at looks increase within"):
        look_level(looks)


@pytest.mark.simulation
@pytest.mark.parametrize(("size", "icc"), [(1, 0.0), (4, 0.0), (4, 0.3), (4, 1.0), (8, 0.3)])
@pytest.mark.parametrize("n_groups", [24, 48, 96])
def test_intervals_cover_at_all_looks_together(size: int, icc: float, n_groups: int) -> None:
    """One prompt of each group at first, then all; of a rate, and of a paired difference of 0.15 or none."""
    rng, looks, n = np.random.default_rng([size, n_groups]), (1 / 3, 2 / 3, 1.0), 1000
    levels = [look_level(looks[: i + 1]) for i in range(len(looks))]
    groups = np.repeat(np.arange(n_groups), size)
    orders = [np.flatnonzero(groups < round(t * n_groups))[:: size if t < 1 else 1] for t in looks]
    for rate, more in ((0.02, 0.0), (0.15, 0.0), (0.5, 0.15), (0.0, 0.15), (0.85, 0.1)):
        covered = np.zeros((n, 2), dtype=bool)
        for i in range(n):
            of_groups, of_change = (rates(icc, mean, n_groups, rng)[groups] for mean in (rate, more))
            other = rng.random(len(groups)) < of_groups
            own = other | (rng.random(len(groups)) < of_change)
            held = []
            for rows, level, t in zip(orders, levels, looks, strict=True):
                only = mean_over_groups(own[rows] & ~other[rows], groups[rows])
                share, k = mean_over_groups(other[rows], groups[rows]), round(t * n_groups)
                paired, single = tango_of_shares(only, 0.0, k, level), clopper_pearson(share * k, k, level)
                held.append((single.low <= rate <= single.high, paired.low <= more * (1 - rate) <= paired.high))
            covered[i] = np.all(held, axis=0)
        assert (covered.mean(axis=0) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / n)).all(), (rate, more, covered.mean(axis=0))


# -- nulls -------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("looks", "n", "level"), [((1.0,), 199, 0.05), ((0.25,), 199, 0.025), ((0.01,), 199, 0.005),
                                                  ((0.25,), 19, 0.025)])  # fmt: skip
def test_a_null_at_a_look_draws_as_many_as_its_level_needs(looks, n: int, level: float) -> None:
    rule = DrawingRule.at_look(looks, n, 0.05)
    assert rule.alpha == pytest.approx(level)
    assert rule.n == max(n, round(1 / level) - 1)
