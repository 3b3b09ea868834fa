"""Certification holds at its nominal rate; data used twice do not certify."""

import numpy as np
import pytest

from probes.statistics.certify import (
    allowed_failures,
    best_reachable,
    certified_prefix,
    n_at_rate,
    n_needed,
    one_per_group,
    upper_limit,
)

DELTA, LIMIT, N = 0.05, 0.1, 80
RATES = np.linspace(0.02, 0.3, 40)  # of settings along a path: each a little worse than the one before
N_RUNS = 2000


def test_the_sizes_of_methods() -> None:
    assert n_needed(0.05, 0.95) == 59
    assert n_needed(0.02, 0.95) == 149
    for n in (1, 10, 59, 149):
        assert best_reachable(n, 0.95) == pytest.approx(1 - 0.05 ** (1 / n))
        assert n_needed(best_reachable(n, 0.95), 0.95) == n
    assert best_reachable(0, 0.95) == 1.0


def test_allowed_failures_are_the_most_that_certify_and_more_take_more_draws() -> None:
    for n, limit in ((59, 0.05), (58, 0.05), (93, 0.05), (30, 0.15), (0, 0.5)):
        most = allowed_failures(n, limit, 0.95)
        assert most == -1 or upper_limit(most, n, 0.95) <= limit
        assert upper_limit(most + 1, n, 0.95) > limit
    assert (allowed_failures(59, 0.05, 0.95), allowed_failures(58, 0.05, 0.95)) == (0, -1)
    for rate in (0.0, 0.01, 0.03):
        n = n_at_rate(rate, 0.05, 0.95)
        assert n is not None
        assert upper_limit(np.ceil(rate * n), n, 0.95) <= 0.05
    assert n_at_rate(0.0, 0.05, 0.95) == 59
    assert n_at_rate(0.05, 0.05, 0.95) is None  # no number shows a rate to be below itself


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be between 0 and 1; got 0 and 0\.95"):
        n_needed(0, 0.95)
    with pytest.raises(ValueError, match=r"got \(4,\) with 1 sample sizes"):
        certified_prefix(np.zeros(4), [3], [0.1], 0.95)


def test_the_path_ends_at_the_first_failure() -> None:
    failures = np.array([[0, 0], [0, 1], [5, 0], [0, 0]])
    assert certified_prefix(failures, [60, 60], [0.08, 0.08], 0.95) == 2
    assert certified_prefix(failures[:2], [60, 60], [0.08, 0.08], 0.95) == 2
    assert certified_prefix(failures, [60, 20], [0.08, 0.08], 0.95) == 0  # too few of one risk certify nothing


def test_one_prompt_of_each_group() -> None:
    rows, groups = np.arange(100, 112), np.repeat([7, 8, 9, 7], 3)
    drawn = one_per_group(rows, groups, seed=0)
    assert sorted(groups[drawn - 100]) == [7, 8, 9]
    np.testing.assert_array_equal(drawn, one_per_group(rows, groups, seed=0))
    assert len({tuple(one_per_group(rows, groups, seed)) for seed in range(30)}) > 5


def _failures(rng: np.random.Generator, rates: np.ndarray = RATES) -> np.ndarray:
    """Settings that share their prompts, as thresholds do: a prompt fails at every rate above its own number."""
    return (rng.random((N, 1)) < rates[None, :]).sum(axis=0)[:, None]


def test_the_guarantee_holds_at_its_nominal_rate() -> None:
    rng, wrong, none = np.random.default_rng(0), 0, 0
    for _ in range(N_RUNS):
        passed = certified_prefix(_failures(rng), [N], [LIMIT], 1 - DELTA)
        none += passed == 0
        wrong += passed > 0 and RATES[passed - 1] > LIMIT
    slack = 3 * np.sqrt(DELTA * (1 - DELTA) / N_RUNS)
    assert wrong / N_RUNS <= DELTA + slack
    assert wrong / N_RUNS >= DELTA / 5  # and is not so timid that it says nothing
    assert none / N_RUNS < 0.6


def test_two_risks_hold_together() -> None:
    """One falls along the path while the other rises, as over-refusal and missed harm do."""
    rng, wrong = np.random.default_rng(1), 0
    falling = RATES[::-1] / 2
    for _ in range(N_RUNS):
        failures = np.concatenate([_failures(rng), _failures(rng, falling)], axis=1)
        passed = certified_prefix(failures[10:], [N, N], [LIMIT, 0.14], 1 - DELTA)
        wrong += passed > 0 and (RATES[10:][:passed].max() > LIMIT or falling[10:][:passed].max() > 0.14)
    assert wrong / N_RUNS <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / N_RUNS)


def test_a_path_chosen_on_the_same_data_breaks_it() -> None:
    """The control: settings that are all at fault, of which the luckiest on these very prompts is tried first."""
    rng, wrong = np.random.default_rng(2), 0
    bad = np.full(40, 0.13)
    for _ in range(N_RUNS):
        failures = rng.binomial(N, bad)[:, None]
        wrong += certified_prefix(failures[np.argsort(failures[:, 0])], [N], [LIMIT], 1 - DELTA) > 0
    assert wrong / N_RUNS > 3 * DELTA
    rightly = sum(certified_prefix(rng.binomial(N, bad)[:, None], [N], [LIMIT], 1 - DELTA) > 0 for _ in range(N_RUNS))
    assert rightly / N_RUNS <= DELTA + 0.015


def test_prompts_of_one_group_counted_as_many_break_it() -> None:
    """The control for one prompt a group: eight copies of each of ten draws are not eighty draws."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(N_RUNS):
        failures = np.array([[8 * rng.binomial(N // 8, 0.13)]])
        wrong += certified_prefix(failures, [N], [LIMIT], 1 - DELTA) > 0
    assert wrong / N_RUNS > 2 * DELTA
