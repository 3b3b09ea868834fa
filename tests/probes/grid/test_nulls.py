"""Null distributions: p-values are uniform for labels without information and small for planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from probes.grid.nulls import control_auroc, null_auroc
from probes.means import difference_in_means, unit
from probes.statistics.permutation import permuted_labels
from probes.statistics.seeds import named_rng
from tests.support.draws import draws


def test_a_planted_signal_has_a_small_p_and_exceeds_both_nulls() -> None:
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
def test_p_values_of_grouped_rows_are_uniform_only_with_groups(n_draws: int) -> None:
    grouped = np.array([_grouped_p(s, by_group=True) for s in range(n_draws)])
    most = 0.1 + 2.36 * np.sqrt(0.1 * 0.9 / n_draws)  # 0.15 of 200
    assert np.mean(grouped <= 0.1) <= most
    if n_draws >= 200:  # the control, which fewer do not show
        by_row = np.array([_grouped_p(s, by_group=False) for s in range(n_draws)])
        assert np.mean(by_row <= 0.1) > most


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((60, 5)), np.arange(60) % 2 == 0
    one, again, other = (null_auroc(X[:30], y[:30], X[30:], y[30:], n=19, seed=s) for s in (0, 0, 1))
    assert one == again
    assert one.permutation_95 != other.permutation_95
    assert one.observed == other.observed


def test_the_nulls_are_the_loop_over_permuted_fits_and_random_directions() -> None:
    """Also with ties: the second kind of activations has each of six rows many times, in both classes."""
    rng = np.random.default_rng(8)
    y = np.arange(80) % 2 == 0
    for X in (rng.standard_normal((80, 5)) + y[:, None], rng.standard_normal((6, 5))[rng.integers(0, 6, 80)]):
        one, rows, columns = np.arange(80), slice(0, 40), slice(40, 80)
        null = null_auroc(X[rows], y[rows], X[columns], y[columns], groups=one[rows] // 2, n=29, seed=3)
        permuted = permuted_labels(y[rows], 29, named_rng(3, "permuted training labels"), groups=one[rows] // 2)
        fitted = [roc_auc_score(y[columns], X[columns] @ difference_in_means(X[rows], labels)) for labels in permuted]
        random = named_rng(3, "random directions").standard_normal((29, X.shape[1]))
        isotropic = [roc_auc_score(y[columns], X[columns] @ direction) for direction in random]
        assert null.mean == pytest.approx(np.mean(fitted), abs=1e-12)
        assert null.permutation_95 == pytest.approx(np.quantile(fitted, 0.95), abs=1e-12)
        assert null.random_direction_95 == pytest.approx(np.quantile(isotropic, 0.95), abs=1e-12)
        assert null.p_fitted == (1 + sum(value >= null.observed - 1e-9 for value in fitted)) / 30


# -- control tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spread", "low", "high"), [(4.0, 0.95, 1.0), (0.0, 0.4, 0.6)])
def test_types_that_can_be_read_make_the_control_easy(spread: float, low: float, high: float) -> None:
    rng = np.random.default_rng(0)
    types = np.array([f"type{i % 8}" for i in range(400)])
    X = rng.standard_normal((400, 24)) + spread * rng.standard_normal((8, 24))[np.arange(400) % 8]
    half = np.arange(400) < 200
    assert low <= control_auroc(X[half], types[half], X[~half], types[~half], C=0.1) <= high


def test_no_control_without_four_types_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    X, own = rng.standard_normal((40, 4)), np.array([f"only{i}" for i in range(40)])
    assert np.isnan(control_auroc(X[:20], own[:20], X[20:], own[20:], C=1.0))
    three = np.array([f"t{i % 3}" for i in range(40)])
    assert np.isnan(control_auroc(X[:20], three[:20], X[20:], three[20:], C=1.0))
