"""Permutation and random-direction nulls of the test AUROC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from probes.grid.solver import fit_logistic_batch
from probes.means import difference_in_means, differences_in_means
from probes.statistics.metrics import auroc, aurocs
from probes.statistics.permutation import label_permutation_p, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True)
class NullAUROC:
    """Test AUROCs of probes without information, and where the observed one lies among them.

    One shuffled fit says little: where the stream has one dominant component every direction leans on it, and a
    single null AUROC may be far from 0.5 on either side. So the whole distribution counts.

    `p_permutation` is the one to read: the larger of two, since each rules out one way to have learnt nothing.
    `p_fitted` sets the AUROC beside those of fits on permuted training labels (does it take *these* labels, or does any
    fit do?). It alone is too small where the fit is real and the test labels mean nothing, but other directions vary
    less on test (as those do that hold what minimal pairs share). `p_tested` sets it beside permuted test labels (do
    the classes differ along it?), and alone is too small where any direction reads them. Where a strong contrast is
    most of what varies, permuted fits lean on it and reach as far, so that `p_fitted` is large: no proof of nothing.
    """

    observed: float
    mean: float  # of the permuted fits
    p_permutation: float
    p_fitted: float  # (1 + #{null >= observed}) / (1 + n)
    p_tested: float
    permutation_95: float  # of the permuted fits
    n: int
    random_direction_95: float | None = None  # where random directions are a null of this probe


def null_auroc(
    X_train: Float[np.ndarray, "train features"],
    y_train: Bool[np.ndarray, " train"],
    X_test: Float[np.ndarray, "test features"],
    y_test: Bool[np.ndarray, " test"],
    *,
    groups: Shaped[np.ndarray, " train"] | None = None,
    test_groups: Shaped[np.ndarray, " test"] | None = None,
    n: int = 199,
    seed: int = 0,
) -> NullAUROC:
    """Compare the test AUROC of the difference in means with n permuted fits and n isotropic random directions.

    Args:
        groups, test_groups: (n_train,) and (n_test,) what belongs together; without them every row stands for itself,
            which makes p-values too small where rows of a group are alike.
    """
    permuted = differences_in_means(X_train, _permuted(y_train, groups, n, seed))
    isotropic = named_rng(seed, "random directions").standard_normal((n, X_train.shape[1]))
    X = X_test.astype(np.float64)
    score = X @ difference_in_means(X_train, y_train)
    null, random = (aurocs(X @ vectors.T, y_test) for vectors in (permuted, isotropic))
    return _null(score, null, y_test, test_groups, seed, float(np.quantile(random, 0.95)))


def logistic_null(
    X_train: Float[np.ndarray, "train features"],
    y_train: Bool[np.ndarray, " train"],
    X_test: Float[np.ndarray, "test features"],
    y_test: Bool[np.ndarray, " test"],
    *,
    C: float,
    groups: Shaped[np.ndarray, " train"] | None = None,
    test_groups: Shaped[np.ndarray, " test"] | None = None,
    n: int = 199,
    seed: int = 0,
) -> NullAUROC:
    """Compare the test AUROC of a logistic probe with n fits on permuted training labels, all in one batch.

    The mean of the null is not 0.5 where labels are unevenly given: with minimal pairs beside groups of one class only,
    permuting within pairs leaves those groups their label, and telling them from pairs is half of the contrast.

    Args:
        groups, test_groups: as for `null_auroc`.
    """
    labels = np.concatenate([y_train[None], _permuted(y_train, groups, n, seed)])
    X, n_train = np.concatenate([X_train, X_test]), len(y_train)
    train = np.zeros((n + 1, len(X)), dtype=bool)
    train[:, :n_train] = True
    y = np.concatenate([labels, np.zeros((n + 1, len(X_test)), dtype=bool)], axis=1)
    scores = fit_logistic_batch(X, train, y, [C], tol=1e-3).scores[:, 0, n_train:]
    return _null(scores[0], aurocs(scores[1:].T, y_test), y_test, test_groups, seed)


def _permuted(y: np.ndarray, groups: np.ndarray | None, n: int, seed: int) -> np.ndarray:
    return permuted_labels(y, n, named_rng(seed, "permuted training labels"), groups=groups)


def _null(
    score: np.ndarray,
    null: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray | None,
    seed: int,
    random_95: float | None = None,
) -> NullAUROC:
    observed = auroc(y, score)
    fitted = float(permutation_p(null, observed))
    tested = label_permutation_p(y, score, np.arange(len(y)) if groups is None else groups, n=len(null), seed=seed)
    return NullAUROC(
        observed=observed,
        mean=float(null.mean()),
        p_permutation=max(fitted, tested),
        p_fitted=fitted,
        p_tested=tested,
        permutation_95=float(np.quantile(null, 0.95)),
        n=len(null),
        random_direction_95=random_95,
    )
