"""Permutation tests: labels move within their groups, p-values are exact under no effect and small under one."""

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

from probes.statistics.permutation import (
    MIN_LABELLINGS,
    holm,
    label_permutation_p,
    n_labellings,
    permutation_p,
    permuted_labels,
    permuted_p,
)
from tests.support.draws import draws


@draws(60, 300)
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_no_effect_is_detected_at_most_at_the_nominal_rate(rate: float, n_draws: int) -> None:
    rng, seen, naive = np.random.default_rng(0), 0, 0
    for _ in range(n_draws):
        groups = np.repeat(np.arange(50), rng.integers(1, 7, 50))  # prompts of a group all do the same
        outcome, has = (rng.random(50) < rate)[groups], (rng.permutation(50) < 12)[groups]
        seen += permuted_p(has, outcome, groups, np.array(["order", "aim"])[groups % 2], 199, rng) <= 0.05
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
    apart = permuted_p(has, outcome, groups, risky.astype(str), 999, rng)
    together = permuted_p(has, outcome, groups, None, 999, rng)
    assert apart > 0.1
    assert together < 0.01


def test_an_effect_is_seen_between_groups_and_within_them_and_labels_move_within_groups() -> None:
    rng, groups = np.random.default_rng(2), np.repeat(np.arange(40), 4)
    between, within = groups < 10, np.arange(160) % 4 == 0
    for has in (between, within):
        assert permuted_p(has, has, groups, None, 999, rng) == 0.001
    # groups refused whole or not at all, each with one prompt that has it: every labelling is the same
    groups = np.repeat(np.arange(40), 4)
    assert permuted_p(np.arange(160) % 4 == 0, groups < 20, groups, None, 99, np.random.default_rng(3)) == 1


@draws(120, 1000)
@pytest.mark.parametrize("n_categories", [2, 4, 6])
def test_a_group_that_spans_categories_is_permuted_whole(n_categories: int, n_draws: int) -> None:
    """Value and refusal are both set per group, over all categories: prompts of a group are one observation."""
    rng, seen = np.random.default_rng(n_categories), 0
    groups, category = np.repeat(np.arange(40), n_categories), np.tile(np.arange(n_categories), 40)
    for _ in range(n_draws):
        has, refused = rng.permutation(np.arange(40) < 20)[groups], (rng.random(40) < 0.4)[groups]
        seen += permuted_p(has, refused, groups, category, 99, rng) <= 0.05
    assert seen <= 0.05 * n_draws + 3 * np.sqrt(0.05 * 0.95 * n_draws)


def test_groups_of_equal_composition_exchange_their_label_vectors() -> None:
    """Every group holds one sample of each stratum, and both have one label: the vector moves whole."""
    rng, groups, strata = np.random.default_rng(4), np.repeat(np.arange(12), 2), np.tile(["code", "people"], 12)
    y = np.repeat(np.arange(12) < 5, 2)
    drawn = permuted_labels(y, 300, rng, groups=groups, strata=strata).reshape(300, 12, 2)
    assert (drawn[..., 0] == drawn[..., 1]).all()
    assert (drawn[..., 0].sum(axis=1) == 5).all()
    assert drawn[..., 0].mean(axis=0) == pytest.approx(np.full(12, 5 / 12), abs=0.12)


def test_a_group_of_unique_composition_keeps_its_labels() -> None:
    rng, groups = np.random.default_rng(5), np.repeat(["anna", "boris", "clara", "david"], [3, 1, 5, 1])
    y = np.isin(groups, ["anna", "david"])
    drawn = permuted_labels(y, 100, rng, groups=groups)
    assert (drawn[:, np.isin(groups, ["anna", "clara"])] == y[np.isin(groups, ["anna", "clara"])]).all()
    assert {tuple(row) for row in drawn[:, np.isin(groups, ["boris", "david"])]} == {(True, False), (False, True)}


@pytest.mark.parametrize(
    ("labels", "groups", "strata"),
    [("aabb", "1234", "xxxx"), ("abab", "1122", "xxxx"), ("aabb", "1122", "xxxx"), ("aabbab", "112233", "xyxyxy"),
     ("aabbabc", "1122334", "xxxxxxx"), ("abcabc", "111222", "xxyxxy"), ("aabb", "1122", "xyyy")],
)  # fmt: skip
def test_distinct_labellings_are_counted(labels: str, groups: str, strata: str) -> None:
    y, group, stratum = (np.array(list(text)) for text in (labels, groups, strata))
    drawn = permuted_labels(y, 4000, np.random.default_rng(7), groups=group, strata=stratum)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert n_labellings(y, groups=group, strata=stratum) == len(found)
    assert counts.min() > 0.6 * 4000 / len(found)  # all equally likely


def test_fewer_than_a_thousand_labellings_give_no_p() -> None:
    rng = np.random.default_rng(8)
    for n, sure in ((12, False), (14, True)):
        y, score, groups = np.arange(n) < n // 2, np.arange(n)[::-1].astype(float), np.arange(n)
        assert (n_labellings(y) >= MIN_LABELLINGS) == sure
        assert np.isnan(label_permutation_p(y, score, groups)) != sure
        assert np.isnan(permuted_p(y, score, groups, None, 99, rng)) != sure
    assert np.isnan(permutation_p(np.zeros((9, 2)), np.ones(2), labellings=999)).all()


def test_holm_steps_down_and_leaves_out_what_has_no_p() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1, 1]
    adjusted = holm([0.01, float("nan"), 0.03])
    assert adjusted[::2] == [0.02, 0.03]
    assert np.isnan(adjusted[1])


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


def test_roles_move_with_their_group() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4])
    roles = np.array([6, 4, 1, 6, 6, 1, 4, 1, 6])
    drawn = permuted_labels(roles, 400, np.random.default_rng(1), groups=groups)
    assert {tuple(sorted(row[:3])) for row in drawn} == {(1, 4, 6)}  # the only group of three
    assert {tuple(row[[3, 4, 6, 7]]) for row in drawn} == {(6, 6, 4, 1), (6, 6, 1, 4), (4, 1, 6, 6), (1, 4, 6, 6)}
    assert {tuple(row[[5, 8]]) for row in drawn} == {(1, 6), (6, 1)}


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
