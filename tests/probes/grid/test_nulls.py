"""Null distributions: p-values are uniform for labels without information and small for planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from probes.grid.nulls import control_auroc, null_auroc
from probes.means import difference_in_means
from probes.statistics.permutation import permuted_labels
from probes.statistics.seeds import named_rng


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
