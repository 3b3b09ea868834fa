"""Geometry of contrasts at one locus: cosines, principal angles, transfer and cross-erasure.

Only directions of one locus are compared. Principal angles are those of reading subspaces (INLP with mass-mean probes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Real
from scipy.linalg import subspace_angles

from probes.contrast import Contrast
from probes.covariance import Eraser
from probes.direction import nullspace_directions
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.fitted_direction import (
    Fits,
    FittedDirection,
    PermutedP,
    Samples,
    against_permuted,
    check_no_leakage,
    check_same_locus,
    fit_with_null,
)
from probes.means import differences_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from probes.statistics.metrics import aurocs, discrimination
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True, kw_only=True)
class Angles(PermutedP):
    """Principal angles in radians, smallest first; p-values are for the cosine of the smallest angle."""

    a: str
    b: str
    angles: tuple[float, ...]


def reading_subspaces(fitted: FittedDirection, k: int) -> Float[np.ndarray, "fits k features"]:
    """Return orthonormal rows of iterated nullspace projection (INLP; arXiv 2004.07667), of each labelling.

    The classifier is the mass-mean probe w = C^-1 (mu+ - mu-) (Marks & Tegmark, arXiv 2310.06824), with C the shrunk
    covariance of the training rows, so the k directions span C^-1 theta, ..., C^-k theta. (With C pooled within
    classes, w is the same up to scale; the shrinkage is held fixed.) If the covariance is nearly isotropic, the further
    directions are zero, because they are not determined. Two other definitions are not suitable: after projecting out a
    difference in means there is none left; and the principal components of the pairs' differences (Zou et al. 2023,
    arXiv 2310.01405) do not depend on signs, so permuting labels within pairs gives the same subspace.
    """
    if not 1 <= k <= fitted.X.shape[1]:
        raise ValueError(f"k must be between 1 and d_model = {fitted.X.shape[1]}; got {k}")
    return _iterated(fitted.means(), fitted, k)


def _iterated(means: Fits, fitted: FittedDirection, k: int) -> Fits:
    def fit(earlier: np.ndarray) -> np.ndarray:
        return fitted.covariance.solve(earlier[:, -1] if earlier.shape[1] else means)

    return nullspace_directions(fit, len(means), k, means.shape[1])


def compare_reading_subspaces(a: FittedDirection, b: FittedDirection, rows_a: Fits, rows_b: Fits) -> Angles:
    """Return the principal angles between two contrasts' reading subspaces, with a permutation null.

    If the contrasts share rows, both are permuted together; each keeps the covariance of its own rows.
    """
    check_same_locus(a, b)

    def largest_cosine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.linalg.norm(A @ np.swapaxes(B, -1, -2), ord=2, axis=(-2, -1))  # of orthonormal rows

    permuted = against_permuted(
        largest_cosine, (a, rows_a), (b, rows_b), lambda means, of: _iterated(means, of, rows_a.shape[1])
    )
    angles = subspace_angles(rows_a[0].T, rows_b[0].T)[::-1]
    return Angles(**vars(permuted), a=a.contrast.name, b=b.contrast.name, angles=tuple(angles.tolist()))


@dataclass(frozen=True)
class LocusGeometry:
    """Measurements at one locus: cosines and angles per pair of contrasts, the others per ordered pair."""

    layer: int
    position: str
    cosines: tuple[Cosine, ...] = ()
    angles: tuple[Angles, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    erasures: tuple[Erasure, ...] = ()


def geometry_at(
    X: Real[np.ndarray, "samples features"],
    layer: int,
    position: str,
    contrasts: Sequence[Contrast],
    *,
    k: int = 2,
    n: int = 199,
    seed: int = 0,
) -> LocusGeometry:
    """Measure one locus; only the contrasts' rows of X need be finite.

    Contrasts have different names. Fits use the train part, AUROCs the test part; a group has one name and one part in
    all of them. `k` is the dimension of the reading subspaces, `n` the number of permuted labellings. Raises
    ValueError, naming the locus, if a part lacks a class or a group is in two parts.
    """
    try:
        return _geometry(X, layer, position, contrasts, k, n, seed)
    except ValueError as error:
        raise ValueError(f"layer {layer}, {position}: {error}") from error


def _geometry(
    X: np.ndarray, layer: int, position: str, contrasts: Sequence[Contrast], k: int, n: int, seed: int
) -> LocusGeometry:
    names = [c.name for c in contrasts]
    if len(set(names)) < len(names):
        raise ValueError(f"contrasts need different names; got {', '.join(names)}")
    used = np.unique(np.concatenate([c.rows for c in contrasts]))
    X = np.asarray(X)[used].astype(np.float64)
    fits = [fit_with_null(X, replace(c, rows=np.searchsorted(used, c.rows)), n=n, seed=seed) for c in contrasts]
    spaces = [reading_subspaces(f, k) for f in fits]
    return LocusGeometry(
        layer=layer,
        position=position,
        cosines=tuple(compare_directions(a, b) for a, b in itertools.combinations(fits, 2)),
        angles=tuple(
            compare_reading_subspaces(a, b, of_a, of_b)
            for (a, of_a), (b, of_b) in itertools.combinations(zip(fits, spaces, strict=True), 2)
        ),
        transfers=tuple(transfer(a, b) for a, b in itertools.product(fits, fits)),
        erasures=tuple(cross_erasure(a, b) for a, b in itertools.product(fits, fits)),
    )


# -- one contrast read by another: transfer of its direction, and cross-erasure (its AUROC after LEACE of the other) ---


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
