"""One contrast read by another: transfer of its direction, and cross-erasure (its AUROC after LEACE of the other)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.covariance import Eraser
from probes.geometry.fitted_direction import FittedDirection, Samples, check_no_leakage, check_same_locus
from probes.means import differences_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from probes.statistics.metrics import aurocs, discrimination
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True)
class Transfer:
    """The AUROC of the direction of `fitted_on` on the test rows of `tested_on`.

    An AUROC far below 0.5 is as informative as one far above, so p-values are two-sided, for its distance from 0.5.
    Report `p`, the larger of two: `p_fitted` compares with directions of permuted training labels (is *this* contrast
    needed?), `p_tested` with permuted test labels (do these classes differ along the direction?).
    """

    fitted_on: str
    tested_on: str
    auroc: Estimate  # with an interval over the groups of the test rows
    p: PValue
    p_fitted: PValue
    p_tested: PValue
    null_low: float  # 2.5 % and 97.5 % quantiles over permuted directions
    null_high: float
    n: int


def transfer(a: FittedDirection, b: FittedDirection) -> Transfer:
    """Test the direction of `a` on the test rows of `b`, with the permuted directions of `a` as null."""
    check_same_locus(a, b)
    check_no_leakage(a.contrast, b.contrast)
    X, y, groups = _centred_test(b)
    scores = (X @ a.means().T).T
    auroc = discrimination(y, scores[0], groups).auroc
    observed, null = abs(auroc.estimate - 0.5), aurocs(scores[1:], y)
    rng = named_rng(a.seed, "transfer", a.contrast.name, b.contrast.name)
    relabelled = aurocs(scores[0], permuted_labels(y, len(null), rng, groups=groups))
    p_fitted, p_tested = (
        float(permutation_p(np.abs(values - 0.5), observed, labellings=labellings))
        for values, labellings in ((null, a.n_labellings), (relabelled, n_labellings(y, groups=groups)))
    )
    low, high = np.quantile(null, [0.025, 0.975])
    return Transfer(
        fitted_on=a.contrast.name,
        tested_on=b.contrast.name,
        auroc=auroc,
        p=float(np.max([p_fitted, p_tested])),  # NaN if either is
        p_fitted=p_fitted,
        p_tested=p_tested,
        null_low=float(low),
        null_high=float(high),
        n=len(null),
    )


@dataclass(frozen=True)
class Erasure:
    """AUROCs of the contrast `read` on its test rows, before and after erasing the contrast `erased`.

    `after` is for a probe refitted on the erased training rows of `read`; erasing a contrast from itself leaves nothing
    to fit there, the positive control. With fewer samples than dimensions the erased direction is an estimate, so
    `fresh_before` and `fresh_after` are for a probe fitted on the *validation* rows of `read` (NaN if they lack a
    class). If `fresh_after` stays high for a contrast's own erasure, a high value after another's is weak evidence.

    `p` is one-sided: how often an eraser of permuted labels gives an AUROC as low as this one.
    """

    erased: str
    read: str
    before: Estimate
    after: Estimate
    fresh_before: Estimate
    fresh_after: Estimate
    p: PValue
    null_after: float  # median AUROC after erasing permuted labels
    null_after_low: float  # 5 % quantile of the same
    n: int


def cross_erasure(a: FittedDirection, b: FittedDirection) -> Erasure:
    """Erase `a`, then fit and test `b`; the null erases permuted labels of `a`."""
    check_same_locus(a, b)
    for trained in (a.contrast, b.contrast):
        check_no_leakage(trained, b.contrast)
    X, y, groups = _centred_test(b)

    def measured(scores: np.ndarray) -> Estimate:
        return discrimination(y, scores, groups).auroc

    after = _scores(a.erasers, b, "train", X)
    null = aurocs(after[:, 1:].T, y)
    fresh = [NO_ESTIMATE, NO_ESTIMATE]
    if 0 < b.contrast.y[b.contrast.within("validation")].sum() < len(b.contrast.within("validation")):
        check_no_leakage(a.contrast, b.contrast, "validation")
        validation, label, _ = b.samples("validation")
        own = differences_in_means(validation, label[None])[0]
        first = Eraser(a.erasers.theta[:1], a.erasers.covector[:1], a.erasers.mean)
        fresh = [measured(X @ own), measured(_scores(first, b, "validation", X)[:, 0])]
    erased = measured(after[:, 0])
    return Erasure(
        erased=a.contrast.name,
        read=b.contrast.name,
        before=measured(X @ b.vector),
        after=erased,
        fresh_before=fresh[0],
        fresh_after=fresh[1],
        p=float(permutation_p(-null, -erased.estimate, labellings=a.n_labellings)),
        null_after=float(np.median(null)),
        null_after_low=float(np.quantile(null, 0.05)),
        n=len(null),
    )


def _centred_test(b: FittedDirection) -> Samples:
    X, y, groups = b.samples("test")
    return X - X.mean(axis=0), y, groups


def _scores(erasers: Eraser, b: FittedDirection, part: str, X: np.ndarray) -> np.ndarray:
    """Refit `b` on one erased part and score the erased rows X; (n_samples, n_erasers)."""
    rows, y, _ = b.samples(part)
    means = differences_in_means(rows, y[None])[0]
    refitted = means - erasers.theta * (erasers.covector @ means)[:, None]
    refitted[np.linalg.norm(refitted, axis=1) <= 1e-6 * np.linalg.norm(means)] = 0  # only rounding is left
    along = (refitted * erasers.theta).sum(axis=1)
    return X @ refitted.T - (X @ erasers.covector.T) * along
