"""Coverage of every interval that reports print, over clustered outcomes: at least 93 % where 95 % is stated.

Outcomes are binary. A prompt takes its group's outcome with probability sqrt(r), so two prompts of a group correlate by
r. The table in docs/coverage.md holds the lowest coverage over the true rates 0, .05 and .5 (`lowest`).
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from probes.statistics.intervals import (
    Estimate,
    clopper_pearson,
    difference,
    effective_number,
    grouped_mean,
    mean_over_groups,
    tango_of_shares,
    wilson,
)
from probes.statistics.means import mean_interval, sum_of_means

RATES = (0.0, 0.05, 0.5)
# group sizes, of 96 prompts (102 where unequal)
SIZES = {"1": [1] * 96, "2": [2] * 48, "4": [4] * 24, "8": [8] * 12, "unequal": [1, 1, 1, 2, 4, 8] * 6}
CLUSTERED = [(name, r) for name in SIZES for r in (0.0, 0.3, 1.0) if name != "1" or r == 0]
SLOW = "mean of group rates"  # some milliseconds an interval
STRATA = ("benign", "harmful", "uncertain")


def newcombes_paired(both: float, only_a: float, only_b: float, neither: float, n: float | None = None) -> Estimate:
    """Return the interval of a paired difference by Newcombe's method 10 (1998), a control: reports print Tango's."""
    pairs = both + only_a + only_b + neither
    n = float(pairs) if n is None else n
    both, only_a, only_b, neither = (n / pairs * count for count in (both, only_a, only_b, neither))
    product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    cross = both * neither - only_a * only_b
    phi = (max(cross - n / 2, 0.0) if cross > 0 else cross) / np.sqrt(product) if product > 0 else 0.0
    return difference(wilson(both + only_a, n), wilson(both + only_b, n), float(phi))


clopper_pearson, wilson, paired, tango = map(  # type: ignore[assignment,misc]
    cache, (clopper_pearson, wilson, newcombes_paired, tango_of_shares)
)
Coverer = Callable[[np.random.Generator, np.ndarray, float, float], tuple[Estimate, float]]  # interval, truth


def outcomes(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> np.ndarray:
    shared, own = rng.random(groups.max() + 1) < rate, rng.random(len(groups)) < rate
    return np.where(rng.random(len(groups)) < np.sqrt(r), shared[groups], own)


def kish(groups: np.ndarray) -> float:
    return effective_number(np.bincount(groups))


def pair(
    rng: np.random.Generator, groups: np.ndarray, rate: float, r: float, more: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw paired outcomes; the second agrees with the first on most prompts, or is true on `more` of the others."""
    first, fresh = outcomes(rng, groups, rate, r), outcomes(rng, groups, rate, r)
    if more:
        return first | outcomes(rng, groups, more, r), first, more * (1 - rate)
    return np.where(outcomes(rng, groups, 0.7, r), first, fresh), first, 0.0


def counts_of(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int, int]:
    return int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum()), int((~a & ~b).sum())


def of_rate(interval: Callable[[float, float], Estimate]) -> Coverer:
    def cover(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
        n = kish(groups)
        return interval(float(outcomes(rng, groups, rate, r).sum()) / len(groups) * n, n), rate

    return cover


def of_change(more: float, *, newcombe: bool = False) -> Coverer:
    def cover(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
        a, b, truth = pair(rng, groups, rate, r, more)
        counts, n = counts_of(a, b), kish(groups)
        return paired(*counts, n) if newcombe else tango(counts[1] / len(a), counts[2] / len(a), n), truth

    return cover


def of_costs(more: float) -> Coverer:
    """Three labels with as many prompts each, in the same groups."""

    def cover(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
        drawn = [pair(rng, groups, rate, r, more) for _ in STRATA]
        values = np.concatenate([(a.astype(float) - b) / 3 for a, b, _ in drawn])
        strata = np.repeat(np.array(STRATA, dtype=object), len(groups))
        return sum_of_means(values, strata, np.tile(groups, 3), dict.fromkeys(STRATA, 1 / 3)), drawn[0][2]

    return cover


def of_groups(more: float | None) -> Coverer:
    """The interval that the verdict reads, at the bare number of groups: of a rate, or of a change."""

    def cover(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
        n = float(groups.max() + 1)
        if more is None:
            return clopper_pearson(mean_over_groups(outcomes(rng, groups, rate, r), groups) * n, n), rate
        a, b, truth = pair(rng, groups, rate, r, more)
        return tango(mean_over_groups(a & ~b, groups), mean_over_groups(b & ~a, groups), n), truth

    return cover


@cache
def mean_of(values: tuple[float, ...]) -> Estimate:
    return mean_interval(np.array(values), 0.0, 1.0)


def of_group_means(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
    means = np.bincount(groups, outcomes(rng, groups, rate, r)) / np.bincount(groups)
    return mean_of(tuple(np.sort(means).tolist())), rate


def of_nats(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
    values = np.sqrt(r) * rng.normal(size=groups.max() + 1)[groups] + np.sqrt(1 - r) * rng.normal(size=len(groups))
    return grouped_mean(values + rate, groups), rate


def grouped_mean_of_rate(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
    return grouped_mean(outcomes(rng, groups, rate, r), groups), rate


PRINTED: dict[str, Coverer] = {
    "rate: clopper_pearson at Kish's n": of_rate(clopper_pearson),
    "rate: wilson at Kish's n": of_rate(wilson),
    "change: tango, none": of_change(0.0),
    "change: tango, large": of_change(0.2),
    "rate: clopper_pearson of group means": of_groups(None),
    "change: tango of group means, none": of_groups(0.0),
    "change: tango of group means, large": of_groups(0.2),
    "saved cost: sum_of_means, none": of_costs(0.0),
    "saved cost: sum_of_means, large": of_costs(0.2),
    "mean of group rates: mean_interval": of_group_means,
    "mean of nats: grouped_mean": of_nats,
}


def coverage(cover: Coverer, sizes: str, r: float, rate: float, n_draws: int) -> float:
    groups = np.repeat(np.arange(len(SIZES[sizes])), SIZES[sizes])
    rng = np.random.default_rng([len(groups), len(SIZES[sizes])])
    held = 0
    for _ in range(n_draws):
        found, truth = cover(rng, groups, rate, r)
        held += found.low - 1e-12 <= truth <= found.high + 1e-12
    return held / n_draws


def lowest(cover: Coverer, sizes: str, r: float, n_draws: int) -> float:
    return min(coverage(cover, sizes, r, rate, n_draws) for rate in RATES)


def table(n_draws: int = 4000) -> Iterator[str]:
    controls = {"newcombe": of_change(0.2, newcombe=True), "grouped_mean of a rate": grouped_mean_of_rate}
    for name, cover in (PRINTED | controls).items():
        yield f"| {name} | " + " | ".join(f"{lowest(cover, sizes, r, n_draws):.3f}" for sizes, r in CLUSTERED) + " |"


@pytest.mark.parametrize("name", [name for name in PRINTED if not name.startswith(SLOW)])
@pytest.mark.parametrize(("sizes", "r"), [("1", 0.0), ("4", 0.3), ("unequal", 1.0)])
def test_every_printed_interval_covers(name: str, sizes: str, r: float) -> None:
    assert lowest(PRINTED[name], sizes, r, 80) >= 0.93 - 3.5 * np.sqrt(0.95 * 0.05 / 80)


@pytest.mark.parametrize(("sizes", "r"), CLUSTERED)
@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.simulation
def test_every_printed_interval_covers_in_every_clustering(name: str, sizes: str, r: float) -> None:
    n_draws = 300 if name.startswith(SLOW) else 1000
    assert lowest(PRINTED[name], sizes, r, n_draws) >= 0.93 - 2.5 * np.sqrt(0.95 * 0.05 / n_draws)


def test_counting_prompts_as_groups_does_not_cover() -> None:
    """The control: the same interval at the number of prompts, where the prompts of a group are the same."""

    def cover(rng: np.random.Generator, groups: np.ndarray, rate: float, r: float) -> tuple[Estimate, float]:
        return clopper_pearson(float(outcomes(rng, groups, rate, r).sum()), float(len(groups))), rate

    assert coverage(cover, "8", 1.0, 0.5, 200) < 0.7


@pytest.mark.simulation
def test_newcombes_interval_of_a_change_does_not_cover_at_few_groups() -> None:
    """Where the prompts that change all change one way, from .5; Tango's does. It is why reports print Tango's."""
    groups, rng, held = np.arange(48), np.random.default_rng(0), {paired: 0, tango: 0}
    for _ in range(4000):
        u = rng.random(len(groups))
        a, b = u < 0.55, u < 0.5
        both, only_a, only_b, neither = counts_of(a, b)
        newcombes, tangos = paired(both, only_a, only_b, neither), tango(only_a / 48, only_b / 48, 48.0)
        held[paired] += newcombes.low <= 0.05 <= newcombes.high
        held[tango] += tangos.low <= 0.05 <= tangos.high
    assert held[paired] / 4000 < 0.925
    assert held[tango] / 4000 > 0.95


def test_a_t_interval_over_groups_is_not_one_of_a_rate() -> None:
    """The control: `grouped_mean` holds for nats, not for rates near 0, of which reports print none."""
    assert coverage(grouped_mean_of_rate, "4", 1.0, 0.05, 200) < 0.85


@pytest.mark.parametrize("sizes", SIZES)
def test_saved_costs_have_a_width_where_nothing_varies(sizes: str) -> None:
    groups = np.repeat(np.arange(len(SIZES[sizes])), SIZES[sizes])
    found = sum_of_means(np.zeros(len(groups)), np.full(len(groups), "a"), groups, {"a": 1.0})
    assert found.low == -found.high < 0
    assert found.high == pytest.approx(2.8 / kish(groups), rel=0.35)


def test_a_stratum_without_samples_leaves_all_open_and_duplicated_prompts_change_no_saved_cost() -> None:
    found = sum_of_means(np.zeros(3), np.array(["a"] * 3), np.arange(3), {"a": 0.4, "b": 0.6})
    assert np.isnan(found.estimate)
    assert (found.low, found.high) == (-1.0, 1.0)
    values, groups = np.random.default_rng(0).uniform(-1, 1, 20), np.arange(20)
    once = sum_of_means(values, np.full(20, "a"), groups, {"a": 1.0})
    twice = sum_of_means(np.repeat(values, 2), np.full(40, "a"), np.repeat(groups, 2), {"a": 1.0})
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))
