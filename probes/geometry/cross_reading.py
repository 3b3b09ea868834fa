"""One contrast read by another: transfer of its direction, and cross-erasure (its AUROC after LEACE of the other)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from probes.covariance import ShrunkCovariance, shrunk_covariance
from probes.geometry.fitted_direction import FittedDirection, check_no_leakage, check_same_locus, held_out
from probes.means import differences_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from probes.statistics.metrics import aurocs, aurocs_of_labels, discrimination
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True)
class Transfer:
    """The AUROC of the direction of `fitted_on` on the test rows of `tested_on`.

    An AUROC far below 0.5 is as informative as one far above; it is reported unchanged, and p-values are two-sided, for
    its distance from 0.5. Report `p`, the larger of two: `p_fitted` compares with directions of permuted training
    labels (is *this* contrast needed, or is any direction enough?), `p_tested` with permuted test labels (do these
    classes differ along the direction?).
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


def transfer(a: FittedDirection, b: FittedDirection, alpha: float = 0.05) -> Transfer:
    """Test the direction of `a` on the test rows of `b`, with the permuted directions of `a` as null."""
    check_same_locus(a, b)
    check_no_leakage(a.contrast, b.contrast)
    X, y, groups = held_out(b)
    scores = X @ np.vstack([a.vector, a.permuted]).T
    measured = discrimination(y, scores[:, 0], groups, alpha=alpha)
    observed, null = abs(measured.auroc.estimate - 0.5), aurocs(scores[:, 1:], y)
    rng = named_rng(a.seed, "transfer", a.contrast.name, b.contrast.name)
    relabelled = aurocs_of_labels(scores[:, 0], permuted_labels(y, len(null), rng, groups=groups))
    p_fitted, p_tested = (
        float(permutation_p(np.abs(values - 0.5), observed, labellings=labellings))
        for values, labellings in ((null, a.n_labellings), (relabelled, n_labellings(y, groups=groups)))
    )
    low, high = np.quantile(null, [0.025, 0.975])
    return Transfer(
        fitted_on=a.contrast.name,
        tested_on=b.contrast.name,
        auroc=measured.auroc,
        p=float(np.max([p_fitted, p_tested])),  # NaN if either is
        p_fitted=p_fitted,
        p_tested=p_tested,
        null_low=float(low),
        null_high=float(high),
        n=len(null),
    )


@dataclass(frozen=True)
class Eraser:
    """LEACE of one binary label: x -> x - theta (c . (x - mean)), with c = C^-1 theta / (theta . C^-1 theta).

    This is the least-squares erasure of Belrose et al. (2023, arXiv 2306.03819) in closed form, with the covariance C
    shrunk as in the concept-erasure package and factored once for all labellings; the package decomposes a (d_model,
    d_model) matrix for each. Its `constrain_cov_trace`, which trades erasure for a smaller trace, is not used.
    """

    theta: Float[np.ndarray, "erasers features"]
    covector: Float[np.ndarray, "erasers features"]
    mean: Float[np.ndarray, " features"]  # mean of the samples; a sample at the mean does not change

    def __call__(
        self, X: Float[np.ndarray, "samples features"], which: int = 0
    ) -> Float[np.ndarray, "samples features"]:
        """Erase a label from samples."""
        return X - np.outer((X - self.mean) @ self.covector[which], self.theta[which])


@dataclass(frozen=True)
class Erasure:
    """AUROCs of the contrast `read` on its test rows, before and after erasing the contrast `erased`.

    `after` is for a probe refitted on the erased training rows of `read`. Erasing a contrast from itself leaves nothing
    to fit there, which is the positive control. New samples may differ: with fewer samples than dimensions, the erased
    direction is an estimate. So `fresh_before` and `fresh_after` are for a probe fitted on the *validation* rows of
    `read`, which were not used to fit the eraser (NaN if they lack a class). If `fresh_after` stays high for a
    contrast's own erasure, a high value after erasing another contrast is weak evidence.

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


def fit_erasers(a: FittedDirection, covariance: ShrunkCovariance | None = None) -> Eraser:
    """Fit LEACE on the training rows of `a`, for its labels and then for each permuted labelling; (1 + n) erasers."""
    X = a.samples("train")[0]
    return leace(a.means(), covariance or shrunk_covariance(X), X.mean(axis=0))


def leace(
    theta: Float[np.ndarray, "erasers features"], covariance: ShrunkCovariance, mean: Float[np.ndarray, " features"]
) -> Eraser:
    """Return the erasers of labels, from their differences in means, the covariance and the mean of the samples."""
    solved = covariance.solve(theta)
    along = (theta * solved).sum(axis=1, keepdims=True)
    return Eraser(theta, solved / np.where(along > 0, along, np.inf), mean)


def cross_erasure(
    a: FittedDirection, b: FittedDirection, erasers: Eraser | None = None, alpha: float = 0.05
) -> Erasure:
    """Erase `a` (by `fit_erasers(a)` if not given), then fit and test `b`; the null erases permuted labels of `a`."""
    check_same_locus(a, b)
    for trained in (a.contrast, b.contrast):
        check_no_leakage(trained, b.contrast)
    erasers = erasers or fit_erasers(a)
    X, y, groups = held_out(b)
    after = _scores(erasers, b, "train", X)
    null = aurocs(after[:, 1:], y)
    fresh = [NO_ESTIMATE, NO_ESTIMATE]
    if 0 < b.contrast.y[b.contrast.within("validation")].sum() < len(b.contrast.within("validation")):
        check_no_leakage(a.contrast, b.contrast, "validation")
        validation, label, _ = b.samples("validation")
        own = differences_in_means(validation, label[None])[0]
        first = Eraser(erasers.theta[:1], erasers.covector[:1], erasers.mean)
        scores = X @ own, _scores(first, b, "validation", X)[:, 0]
        fresh = [discrimination(y, s, groups, alpha=alpha).auroc for s in scores]
    measured = discrimination(y, after[:, 0], groups, alpha=alpha).auroc
    return Erasure(
        erased=a.contrast.name,
        read=b.contrast.name,
        before=discrimination(y, X @ b.vector, groups, alpha=alpha).auroc,
        after=measured,
        fresh_before=fresh[0],
        fresh_after=fresh[1],
        p=float(permutation_p(-null, -measured.estimate, labellings=a.n_labellings)),
        null_after=float(np.median(null)),
        null_after_low=float(np.quantile(null, 0.05)),
        n=len(null),
    )


def _scores(erasers: Eraser, b: FittedDirection, part: str, X: np.ndarray) -> np.ndarray:
    """Refit `b` on one erased part and score the erased rows X; (n_samples, n_erasers)."""
    rows, y, _ = b.samples(part)
    means = differences_in_means(rows, y[None])[0]
    refitted = means - erasers.theta * (erasers.covector @ means)[:, None]
    refitted[np.linalg.norm(refitted, axis=1) <= 1e-6 * np.linalg.norm(means)] = 0  # only rounding is left
    along = (refitted * erasers.theta).sum(axis=1)
    return X @ refitted.T - (X @ erasers.covector.T) * along
