"""The permutation test of clustered outcomes: exact under no effect at any rate, and able to see one."""

import numpy as np
import pytest
from scipy.stats import fisher_exact

from probes.statistics.permutation import Units, permuted_p
from tests.support.draws import draws


def clustered(rng: np.random.Generator, rate: float, n_groups: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw groups of one to six prompts that all do the same, with the value shuffled over groups."""
    sizes = rng.integers(1, 7, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    outcome = (rng.random(n_groups) < rate)[groups]
    has = (rng.permutation(n_groups) < 12)[groups]
    return groups, outcome, has


@draws(60, 300)
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_no_effect_is_seen_no_oftener_than_the_level_says(rate: float, n_draws: int) -> None:
    rng, seen, naive = np.random.default_rng(0), 0, 0
    for _ in range(n_draws):
        groups, outcome, has = clustered(rng, rate)
        units = Units.of(groups, np.array(["order", "aim"])[groups % 2], has, outcome)
        seen += permuted_p(units, 199, rng) <= 0.05
        table = [[int((outcome & has).sum()), int((~outcome & has).sum())],
                 [int((outcome & ~has).sum()), int((~outcome & ~has).sum())]]  # fmt: skip
        naive += fisher_exact(table)[1] <= 0.05
    most = 0.05 * n_draws + 3 * np.sqrt(0.05 * 0.95 * n_draws)  # what is expected, and three standard errors
    assert seen <= most
    assert naive > most  # what counts prompts as independent does not hold its level


def test_an_effect_within_a_category_only_is_no_effect() -> None:
    """All with the value stand in a category where more is refused, beside ones without it just as much refused."""
    rng, groups = np.random.default_rng(1), np.arange(120)
    risky = groups < 60
    outcome, has = rng.random(120) < np.where(risky, 0.8, 0.1), risky & (groups % 2 == 0)
    apart = permuted_p(Units.of(groups, risky.astype(str), has, outcome), 999, rng)
    together = permuted_p(Units.of(groups, np.full(120, ""), has, outcome), 999, rng)
    assert apart > 0.1
    assert together < 0.01


def test_an_effect_is_seen_between_groups_and_within_them() -> None:
    rng, groups = np.random.default_rng(2), np.repeat(np.arange(40), 4)
    between, within = groups < 10, np.arange(160) % 4 == 0
    for has in (between, within):
        assert permuted_p(Units.of(groups, np.full(160, ""), has, has), 999, rng) == 0.001


def test_what_differs_within_groups_is_moved_within_them() -> None:
    """Groups refused whole or not at all, each with one prompt that has it: every labelling is the same."""
    groups = np.repeat(np.arange(40), 4)
    units = Units.of(groups, np.full(160, ""), np.arange(160) % 4 == 0, groups < 20)
    assert permuted_p(units, 99, np.random.default_rng(3)) == 1
