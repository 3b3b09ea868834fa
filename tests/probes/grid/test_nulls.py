"""Null distributions: p-values are uniform on labels without information and small on planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.metrics import roc_auc_score

from probes.grid.nulls import aurocs, label_permutation_p, null_auroc, permute_labels
from probes.means import unit
from tests.support.draws import draws


def test_aurocs_of_all_columns_are_sklearns() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(50) < 0.3
    scores = np.column_stack([rng.standard_normal((50, 4)), rng.integers(0, 3, (50, 3)), np.zeros(50)])
    np.testing.assert_allclose(aurocs(scores, y), [roc_auc_score(y, column) for column in scores.T])


def test_a_planted_signal_has_a_small_p_and_stands_above_both_nulls() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(160) % 2 == 0
    X = rng.standard_normal((160, 16)) + 2.5 * y[:, None] * unit(rng.standard_normal(16))
    null = null_auroc(X[:80], y[:80], X[80:], y[80:], n=99)
    assert null.p_permutation == 1 / 100
    assert null.observed > 0.9 > max(null.permutation_95, null.random_direction_95)


@draws(40, 150)
def test_p_values_are_uniform_on_labels_without_information(n_draws: int) -> None:
    """Also with one dominant component, on which every direction leans: there a single null AUROC says nothing."""
    nulls = []
    for seed in range(n_draws):
        rng = np.random.default_rng([2, seed])
        X, y = rng.standard_normal((80, 6)) * [8, 1, 1, 1, 1, 1], rng.permutation(np.arange(80) % 2 == 0)
        nulls.append(null_auroc(X[:40], y[:40], X[40:], y[40:], n=39, seed=seed))
    for level in (0.1, 0.25, 0.5, 0.75):
        margin = 2.6 * np.sqrt(level * (1 - level) / n_draws)
        for p in ([null.p_fitted for null in nulls], [null.p_tested for null in nulls]):
            assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=margin)
        assert np.mean([null.p_permutation <= level for null in nulls]) <= level + margin


def _grouped_p(seed: int, *, by_group: bool) -> float:
    """Return the p-value for random labels that whole groups of alike rows share."""
    rng = np.random.default_rng([3, seed])
    n_groups, size, d = 16, 16, 40
    groups = np.repeat(np.arange(2 * n_groups), size)
    label = np.concatenate([rng.permutation(np.arange(n_groups) % 2 == 0) for _ in range(2)])
    between = np.zeros((2 * n_groups, d))
    between[:, :2] = rng.standard_normal((2 * n_groups, 2))
    X, y = between[groups] + rng.standard_normal((len(groups), d)), label[groups]
    train = groups < n_groups
    return null_auroc(
        X[train], y[train], X[~train], y[~train], groups=groups[train] if by_group else None, n=19, seed=seed
    ).p_permutation


@draws(40, 200)
def test_p_values_of_grouped_rows_are_honest_only_when_groups_are_permuted(n_draws: int) -> None:
    grouped = np.array([_grouped_p(s, by_group=True) for s in range(n_draws)])
    most = 0.1 + 2.36 * np.sqrt(0.1 * 0.9 / n_draws)  # 0.15 of 200
    assert np.mean(grouped <= 0.1) <= most
    if n_draws >= 200:  # the control, which fewer do not show
        by_row = np.array([_grouped_p(s, by_group=False) for s in range(n_draws)])
        assert np.mean(by_row <= 0.1) > most


def test_permuting_keeps_the_labels_of_a_mixed_group_inside_it() -> None:
    rng = np.random.default_rng(4)
    groups = rng.permutation(np.repeat(np.arange(30), 4))
    y = np.zeros(120, dtype=bool)
    for g in range(30):
        y[rng.choice(np.flatnonzero(groups == g), 1 + g % 3, replace=False)] = True
    drawn = [permute_labels(y, groups, rng) for _ in range(200)]
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
    for _ in range(100):
        shuffled = permute_labels(y, groups, rng)
        per_group = {g: set(shuffled[groups == g]) for g in set(groups)}
        assert all(len(labels) == 1 for labels in per_group.values())
        seen.add(frozenset(g for g, labels in per_group.items() if labels == {True}))
    assert len(seen) == 6  # every choice of two of four groups
    assert {len(chosen) for chosen in seen} == {2}


def test_without_groups_any_row_may_change_and_the_count_is_kept() -> None:
    rng = np.random.default_rng(6)
    y = np.arange(40) < 10
    drawn = np.array([permute_labels(y, np.arange(40), rng) for _ in range(400)])
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


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((60, 5)), np.arange(60) % 2 == 0
    one, again, other = (null_auroc(X[:30], y[:30], X[30:], y[30:], n=19, seed=s) for s in (0, 0, 1))
    assert one == again
    assert one.permutation_95 != other.permutation_95
    assert one.observed == other.observed
