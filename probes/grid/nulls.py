"""Null distributions of a probe's held-out AUROC: permuted labels and random directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from probes.grid.solver import fit_logistic_batch
from probes.means import difference_in_means


@dataclass(frozen=True)
class NullAUROC:
    """What a probe without information reaches.

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
    X_train: np.ndarray,
    y_train: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    test_groups: np.ndarray | None = None,
    n: int = 199,
    seed: int = 0,
) -> NullAUROC:
    """Compare the test AUROC of the difference in means with n permuted fits and n isotropic random directions.

    Args:
        groups, test_groups: (n_train,) and (n_test,) what belongs together; without them every row stands for itself,
            which makes p-values too small where rows of a group are alike.
    """
    rng = np.random.default_rng(seed)
    y_train = np.asarray(y_train, dtype=bool)
    fitted = difference_in_means(X_train, y_train)
    groups = np.arange(len(y_train)) if groups is None else groups
    permuted = np.stack([difference_in_means(X_train, permute_labels(y_train, groups, rng)) for _ in range(n)])
    isotropic = rng.standard_normal((n, X_train.shape[1]))
    X = X_test.astype(np.float64)
    score = X @ fitted
    null, random = (aurocs(X @ vectors.T, y_test) for vectors in (permuted, isotropic))
    return _null(score, null, y_test, test_groups, seed, float(np.quantile(random, 0.95)))


def logistic_null(
    X_train: np.ndarray,
    y_train: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    *,
    C: float,
    groups: np.ndarray | None = None,
    test_groups: np.ndarray | None = None,
    n: int = 199,
    seed: int = 0,
) -> NullAUROC:
    """Compare the test AUROC of a logistic probe with n fits on permuted training labels, all in one batch.

    The mean of the null is not 0.5 where labels are unevenly given: with minimal pairs beside groups of one class only,
    permuting within pairs leaves those groups their label, and telling them from pairs is half of the contrast.

    Args:
        groups, test_groups: as for `null_auroc`.
    """
    rng, y_train = np.random.default_rng(seed), np.asarray(y_train, dtype=bool)
    groups = np.arange(len(y_train)) if groups is None else groups
    labels = np.stack([y_train, *(permute_labels(y_train, groups, rng) for _ in range(n))])
    X, n_train = np.concatenate([X_train, X_test]), len(y_train)
    train = np.zeros((n + 1, len(X)), dtype=bool)
    train[:, :n_train] = True
    y = np.concatenate([labels, np.zeros((n + 1, len(X_test)), dtype=bool)], axis=1)
    scores = fit_logistic_batch(X, train, y, [C], tol=1e-3).scores[:, 0, n_train:]
    return _null(scores[0], aurocs(scores[1:].T, y_test), y_test, test_groups, seed)


def _null(
    score: np.ndarray,
    null: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray | None,
    seed: int,
    random_95: float | None = None,
) -> NullAUROC:
    observed = float(aurocs(score[:, None], y)[0])
    fitted = float((1 + (null >= observed - 1e-9).sum()) / (1 + len(null)))
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


def permute_labels(y: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute labels the way they were given: within groups that hold both, else from whole group to whole group."""
    _, code = np.unique(groups, return_inverse=True)
    share = np.bincount(code, weights=y) / np.bincount(code)
    pure = (share == 0) | (share == 1)
    within = np.empty_like(y)
    within[np.argsort(code, kind="stable")] = y[np.lexsort((rng.random(len(y)), code))]
    label = share == 1
    label[pure] = rng.permutation(label[pure])
    return np.where(pure[code], label[code], within)


def aurocs(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the AUROC of each column of (n_samples, n_scores), ties counted half (Mann & Whitney 1947)."""
    y = np.asarray(y, dtype=bool)
    n_positive, n_negative = int(y.sum()), int((~y).sum())
    ranks = rankdata(scores, axis=0)
    return (ranks[y].sum(axis=0) - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def label_permutation_p(y: np.ndarray, score: np.ndarray, groups: np.ndarray, *, n: int = 999, seed: int = 0) -> float:
    """Return the p-value of a held-out AUROC: (1 + #{permuted >= observed}) / (1 + n).

    The score stays, the labels are permuted as they were given (`permute_labels`): within minimal pairs, so that what
    pairs share is kept, and from group to group where a group has one label, so that its rows count once.
    """
    y, rng = np.asarray(y, dtype=bool), np.random.default_rng(seed)
    drawn = np.array([permute_labels(y, groups, rng) for _ in range(n)])
    observed, permuted = aurocs(score[:, None], y)[0], aurocs_of_labels(score, drawn)
    return float((1 + (permuted >= observed - 1e-9).sum()) / (1 + n))


def aurocs_of_labels(score: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return the AUROC of one score against each row of labels, (n, n_samples)."""
    n_positive = ys.sum(axis=1)
    n_negative = ys.shape[1] - n_positive
    return (ys @ rankdata(score) - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
