"""Permutation tests: labels move within their groups, p-values are exact under no effect and small under one."""

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

from probes.statistics.permutation import (
    ExchangeableUnits,
    label_permutation_p,
    permutation_p,
    permuted_labels,
    permuted_p,
)
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
def test_no_effect_is_detected_at_most_at_the_nominal_rate(rate: float, n_draws: int) -> None:
    rng, seen, naive = np.random.default_rng(0), 0, 0
    for _ in range(n_draws):
        groups, outcome, has = clustered(rng, rate)
        units = ExchangeableUnits.of(groups, np.array(["order", "aim"])[groups % 2], has, outcome)
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
    apart = permuted_p(ExchangeableUnits.of(groups, risky.astype(str), has, outcome), 999, rng)
    together = permuted_p(ExchangeableUnits.of(groups, np.full(120, ""), has, outcome), 999, rng)
    assert apart > 0.1
    assert together < 0.01


def test_an_effect_is_seen_between_groups_and_within_them() -> None:
    rng, groups = np.random.default_rng(2), np.repeat(np.arange(40), 4)
    between, within = groups < 10, np.arange(160) % 4 == 0
    for has in (between, within):
        assert permuted_p(ExchangeableUnits.of(groups, np.full(160, ""), has, has), 999, rng) == 0.001


def test_labels_that_differ_within_groups_move_within_them() -> None:
    """Groups refused whole or not at all, each with one prompt that has it: every labelling is the same."""
    groups = np.repeat(np.arange(40), 4)
    units = ExchangeableUnits.of(groups, np.full(160, ""), np.arange(160) % 4 == 0, groups < 20)
    assert permuted_p(units, 99, np.random.default_rng(3)) == 1


def test_permuting_keeps_the_labels_of_a_mixed_group_inside_it() -> None:
    rng = np.random.default_rng(4)
    groups = rng.permutation(np.repeat(np.arange(30), 4))
    y = np.zeros(120, dtype=bool)
    for g in range(30):
        y[rng.choice(np.flatnonzero(groups == g), 1 + g % 3, replace=False)] = True
    drawn = permuted_labels(y, 200, rng, groups=groups)
    for g in range(30):
        assert {int(shuffled[groups == g].sum()) for shuffled in drawn} == {int(y[groups == g].sum())}
    assert np.mean(drawn, axis=0) == pytest.approx(
        np.array([y[groups == g].mean() for g in groups]), abs=0.15
    )  # every row of a group is as likely as any other


def test_permuting_moves_labels_of_pure_groups_whole() -> None:
    rng = np.random.default_rng(5)
    groups = np.repeat(["anna", "boris", "clara", "david"], [3, 1, 5, 2])
    y = np.isin(groups, ["anna", "david"])
    seen = set()
    for shuffled in permuted_labels(y, 100, rng, groups=groups):
        per_group = {g: set(shuffled[groups == g]) for g in set(groups)}
        assert all(len(labels) == 1 for labels in per_group.values())
        seen.add(frozenset(g for g, labels in per_group.items() if labels == {True}))
    assert len(seen) == 6  # every choice of two of four groups
    assert {len(chosen) for chosen in seen} == {2}


def test_without_groups_any_row_may_change_and_the_count_is_kept() -> None:
    rng = np.random.default_rng(6)
    y = np.arange(40) < 10
    drawn = permuted_labels(y, 400, rng)
    assert set(drawn.sum(axis=1)) == {10}
    assert drawn.mean(axis=0) == pytest.approx(np.full(40, 0.25), abs=0.08)


def test_label_permutation_of_single_rows_is_the_mann_whitney_test() -> None:
    rng = np.random.default_rng(8)
    y = np.arange(60) % 3 == 0
    for shift in (0.0, 0.3, 0.6):
        score = rng.standard_normal(60) + shift * y
        exact = mannwhitneyu(score[y], score[~y], alternative="greater").pvalue
        assert label_permutation_p(y, score, np.arange(60)) == pytest.approx(exact, abs=0.05)
    assert label_permutation_p(y, y.astype(float), np.arange(60), n=99) == 1 / 100
    assert label_permutation_p(y, np.zeros(60), np.arange(60)) == 1.0


def test_label_permutation_within_pairs_sees_what_pairs_share() -> None:
    """A score that is only the pair's offset plus a little for the positive: pairs tell, single rows do not."""
    rng = np.random.default_rng(9)
    groups, y = np.repeat(np.arange(40), 2), np.tile([True, False], 40)
    score = 10 * rng.standard_normal(40)[groups] + 0.5 * y
    assert label_permutation_p(y, score, groups) == 1 / 1000
    assert label_permutation_p(y, score, np.arange(80)) > 0.2


def test_label_permutation_counts_a_pure_group_once() -> None:
    grouped, by_row = [], []
    for seed in range(150):
        rng = np.random.default_rng([10, seed])
        groups = np.repeat(np.arange(20), 8)
        y = rng.permutation(np.arange(20) % 2 == 0)[groups]
        score = rng.standard_normal(20)[groups] + 0.5 * rng.standard_normal(160)
        grouped.append(label_permutation_p(y, score, groups, n=39, seed=seed))
        by_row.append(label_permutation_p(y, score, np.arange(160), n=39, seed=seed))
    assert np.mean(np.array(grouped) <= 0.1) <= 0.15
    assert np.mean(np.array(by_row) <= 0.1) > 0.25  # the control


def test_roles_move_within_mixed_groups_and_among_pure_ones() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4])
    roles = np.array([6, 4, 1, 6, 6, 1, 4, 4, 1])
    drawn = permuted_labels(roles, 300, np.random.default_rng(1), groups=groups)
    assert {tuple(sorted(row[:3])) for row in drawn} == {(1, 4, 6)}
    assert {tuple(row[:3]) for row in drawn} == {(6, 4, 1), (6, 1, 4), (4, 6, 1), (4, 1, 6), (1, 4, 6), (1, 6, 4)}
    assert all(row[3] == row[4] and row[6] == row[7] for row in drawn)
    assert {tuple(row[[3, 5, 6, 8]]) for row in drawn} == {
        (x, y, z, w) for x in (6, 1, 4) for y in (6, 1, 4) for z in (6, 1, 4) for w in (6, 1, 4)
        if sorted((x, y, z, w)) == [1, 1, 4, 6]
    }  # fmt: skip


def test_every_labelling_is_as_likely_as_any_other() -> None:
    """Four rows in pairs: two mixed pairs give four labellings, two pure ones two, single rows six."""
    y, pairs, rng = np.array([True, False, True, False]), np.array([0, 0, 1, 1]), np.random.default_rng(11)
    for labels, groups, n in ((y, pairs, 4), (np.sort(y), pairs, 2), (y, None, 6)):
        _, counts = np.unique(permuted_labels(labels, 6000, rng, groups=groups), axis=0, return_counts=True)
        assert len(counts) == n
        assert counts == pytest.approx(np.full(n, 6000 / n), rel=0.12)


def test_nothing_leaves_its_stratum() -> None:
    rng = np.random.default_rng(12)
    strata, y = np.repeat(["code", "people", "alone"], [20, 30, 1]), rng.random(51) < 0.4
    pairs = np.arange(51) // 2
    for groups in (None, pairs):
        drawn = permuted_labels(y, 200, rng, groups=groups, strata=strata)
        assert (drawn != y).any()
        for name in np.unique(strata):
            assert set(drawn[:, strata == name].sum(axis=1)) == {y[strata == name].sum()}


def test_p_counts_what_reaches_the_observed_and_the_observed_itself() -> None:
    null = np.array([0.1, 0.5, 0.5 - 1e-12, 0.9])
    assert permutation_p(null, 0.5) == 4 / 5
    assert permutation_p(null, 0.95) == 1 / 5
    assert permutation_p(np.stack([null, -null], axis=1), np.array([0.5, 0.0])).tolist() == [4 / 5, 1 / 5]
