"""Nulls of a probe's test AUROC: permuted labels, random directions, control tasks (Hewitt & Liang 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from probes.means import difference_in_means, differences_in_means
from probes.statistics.metrics import auroc, aurocs
from probes.statistics.permutation import PValue, label_permutation_p, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng

MIN_TYPES = 4  # of control tasks


@dataclass(frozen=True)
class NullAUROC:
    """Test AUROCs of probes without information, and p-values of the observed AUROC.

    Report `p_permutation`, the larger of two p-values. `p_fitted` compares with fits on permuted training labels (are
    *these* labels needed?); it is too small if the fit is real, the test labels carry no information, and other
    directions vary less on test. `p_tested` compares with permuted test labels (do the classes differ along the
    direction?); it is too small if any direction reads them. If a strong contrast dominates the variance, permuted fits
    follow it: a large `p_fitted` then does not show that there is no effect.
    """

    observed: float
    mean: float  # mean of the permuted fits
    p_permutation: PValue
    p_fitted: PValue  # (1 + #{null >= observed}) / (1 + n)
    p_tested: PValue
    permutation_95: float  # 95 % quantile of the permuted fits
    n: int
    random_direction_95: float | None = None  # 95 % quantile of random directions, if they are a null of this probe


def null_auroc(
    X_train: Float[np.ndarray, "train features"],
    y_train: Bool[np.ndarray, " train"],
    X_test: Float[np.ndarray, "test features"],
    y_test: Bool[np.ndarray, " test"],
    *,
    C: float | None = None,
    groups: Shaped[np.ndarray, " train"] | None = None,
    test_groups: Shaped[np.ndarray, " test"] | None = None,
    n: int = 199,
    seed: int = 0,
) -> NullAUROC:
    """Compare a probe's test AUROC with those of n fits on permuted training labels.

    The mean of the null is not 0.5 if the groups of one size are minimal pairs and those of another have one class
    only: labels stay among groups of one size, and separating the sizes is then part of the contrast.

    Args:
        C: of a logistic probe, all of whose fits are one batch; None: the difference in means, compared with n
            isotropic random directions too.
        groups, test_groups: groups of dependent rows; None treats rows as independent, which makes p-values too small
            if rows of a group are similar.
    """
    drawn = permuted_labels(y_train, n, named_rng(seed, "permuted training labels"), groups=groups)
    random_95 = None
    if C is None:
        isotropic = named_rng(seed, "random directions").standard_normal((n, X_train.shape[1]))
        X = X_test.astype(np.float64)
        score = X @ difference_in_means(X_train, y_train)
        null, random = (aurocs((X @ v.T).T, y_test) for v in (differences_in_means(X_train, drawn), isotropic))
        random_95 = float(np.quantile(random, 0.95))
    else:
        scores = _logistic_scores(X_train, np.concatenate([y_train[None], drawn]), X_test, C)
        score, null = scores[0], aurocs(scores[1:], y_test)
    observed, independent = auroc(y_test, score), np.arange(len(y_test))
    fitted = float(permutation_p(null, observed, labellings=n_labellings(y_train, groups=groups)))
    tested = label_permutation_p(y_test, score, independent if test_groups is None else test_groups, n=n, seed=seed)
    return NullAUROC(
        observed=observed,
        mean=float(null.mean()),
        p_permutation=float(np.max([fitted, tested])),  # NaN if either is
        p_fitted=fitted,
        p_tested=tested,
        permutation_95=float(np.quantile(null, 0.95)),
        n=n,
        random_direction_95=random_95,
    )


def _logistic_scores(X_train: np.ndarray, labels: np.ndarray, X_test: np.ndarray, C: float) -> np.ndarray:
    from probes.grid.solver import fit_logistic_batch  # torch; results are read without it

    n_train, X = len(X_train), np.concatenate([X_train, X_test])
    train, y = np.zeros((2, len(labels), len(X)), dtype=bool)
    train[:, :n_train], y[:, :n_train] = True, labels
    return fit_logistic_batch(X, train, y, [C], tol=1e-3).scores[:, 0, n_train:]


def control_auroc(
    X_train: Float[np.ndarray, "train features"],
    types_train: Shaped[np.ndarray, " train"],
    X_test: Float[np.ndarray, "test features"],
    types_test: Shaped[np.ndarray, " test"],
    *,
    C: float,
    n: int = 20,
    seed: int = 0,
) -> float:
    """Return the mean held-out AUROC of logistic probes on n control tasks; NaN if there are too few types.

    A control task gives each *type* (for example a category of prompts) one random label, half of the types each label.
    The AUROC of the real task minus this one is the probe's selectivity, which is small if the probe may only read
    types. Samples of types that are not on both sides of the split are left out; at least four types must remain.
    """
    shared = np.intersect1d(types_train, types_test)
    if len(shared) < MIN_TYPES:
        return float("nan")
    train, test = (np.isin(types, shared) for types in (types_train, types_test))
    rng = named_rng(seed, "control tasks")
    drawn = [rng.permutation(shared)[: len(shared) // 2] for _ in range(n)]
    labels = np.stack([np.isin(types_train[train], positive) for positive in drawn])
    scores = _logistic_scores(X_train[train], labels, X_test[test], C)
    return float(np.mean([auroc(np.isin(types_test[test], p), s) for p, s in zip(drawn, scores, strict=True)]))
