"""A contrast's direction at one locus, those of its permuted labels, and the permutation null of two contrasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped

from probes.contrast import Contrast
from probes.covariance import Eraser, ShrunkCovariance, leace, shrunk_covariance
from probes.means import differences_in_means, mean_weights, weighted_sums
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng

Samples = tuple[Float[np.ndarray, "samples features"], Bool[np.ndarray, " samples"], Shaped[np.ndarray, " samples"]]


@dataclass(frozen=True)
class FittedDirection:
    """The difference in means of a contrast's training rows at one locus; vectors point to the declining class."""

    X: Real[np.ndarray, "samples features"]  # indexed by the contrast's rows
    contrast: Contrast
    vector: Float[np.ndarray, " features"]
    labels: Bool[np.ndarray, "fits train"]  # the given labels, then permuted ones
    permuted: Float[np.ndarray, "permutations features"]  # directions fitted on permuted labels
    seed: int
    n_labellings: float = float("inf")  # distinct labellings behind `permuted`

    def samples(self, part: str) -> Samples:
        """Return X (float64), y and groups of one part; ValueError if the train or test part lacks a class."""
        return _samples_of(self.X, self.contrast, part)

    def means(self) -> Float[np.ndarray, "fits features"]:
        """Return the differences in means of the given labels, then of the permuted ones."""
        return np.vstack([self.vector, self.permuted])

    @cached_property
    def covariance(self) -> ShrunkCovariance:
        """The shrunk covariance of the training rows."""
        return shrunk_covariance(self.samples("train")[0])

    @cached_property
    def erasers(self) -> Eraser:
        """LEACE of the given labels, then of the permuted ones."""
        return leace(self.means(), self.covariance, self.samples("train")[0].mean(axis=0))


def fit_with_null(X: Shaped[np.ndarray, ...], contrast: Contrast, *, n: int = 199, seed: int = 0) -> FittedDirection:
    """Fit a contrast's direction on its training rows, and on each of n permuted labellings.

    The random stream depends on the contrast's name, so two contrasts of one shape are permuted independently. Raises
    ValueError if shapes disagree, a value is not finite, a class has no training row, or the vector is zero.
    """
    if X.ndim != 2:
        raise ValueError(f"X must be (n_samples, d_model); got shape {X.shape}")
    if len(contrast.rows) and not 0 <= contrast.rows.min() <= contrast.rows.max() < len(X):
        raise ValueError(f"contrast {contrast.name!r} uses rows outside the {len(X)} samples of X")
    if n < 19:
        raise ValueError(f"a null needs at least 19 permutations to reach p = 0.05; got {n}")
    if not np.isfinite(X[contrast.rows]).all():
        raise ValueError(f"the rows of contrast {contrast.name!r} have NaN or infinite activations; leave them out")
    train, y, groups = _samples_of(X, contrast, "train")
    drawn = permuted_labels(y, n, named_rng(seed, "permuted labels", contrast.name), groups=groups)
    labels = np.vstack([y, drawn])
    fitted = differences_in_means(train, labels)
    if not np.isfinite(fitted).all() or not fitted[0].any():
        raise ValueError(
            f"the direction of contrast {contrast.name!r} is zero or not finite; check that its class means differ"
        )
    return FittedDirection(X, contrast, fitted[0], labels, fitted[1:], seed, n_labellings(y, groups=groups))


def _samples_of(X: Real[np.ndarray, "all features"], contrast: Contrast, part: str) -> Samples:
    inside = contrast.within(part, both_classes=part != "validation")
    rows = X[contrast.rows[inside]].astype(np.float64, copy=False)
    return rows, contrast.y[inside], contrast.groups[inside]


def check_same_locus(a: FittedDirection, b: FittedDirection) -> None:
    """Refuse directions of two loci, because their coordinates are not comparable."""
    if a.X is not b.X:
        raise ValueError(
            f"{a.contrast.name!r} and {b.contrast.name!r} were fitted on different arrays; "
            "compare only directions of one locus, fitted on the same X"
        )


def check_no_leakage(a: Contrast, b: Contrast, part: str = "test") -> None:
    """Refuse to test on groups that are in the training part."""
    both = set(a.groups[a.within("train")].tolist()) & set(b.groups[b.within(part)].tolist())
    if both:
        raise ValueError(
            f"{len(both)} groups are in the train part of {a.name!r} and the {part} part of {b.name!r}, "
            f"such as {min(map(str, both))!r}; put a group into one part in all contrasts"
        )


@dataclass(frozen=True, kw_only=True)
class PermutedP:
    """P-values for two contrasts' directions being closer than those of permuted labels.

    Report `p`, the larger of `p_a` and `p_b`: a small `p` excludes that *either* label is unrelated to the activations.
    `p_both` excludes only that both are: any noise correlates with a real direction along the stream's largest
    component. Permuted directions follow whatever varies most, including the contrasts' own axes, so a strong contrast
    in few dimensions has a wide null. Contrasts that share training rows are permuted together (`jointly_permuted`);
    then `p` is `p_both` and the others are NaN.
    """

    p: PValue
    p_a: PValue  # labels of a permuted, b fixed
    p_b: PValue
    p_both: PValue
    null_95: float  # 95 % quantile over pairs of permuted directions
    n: int


Fits = Float[np.ndarray, "fits ..."]  # fitted vectors, or rows of subspaces


def against_permuted(
    statistic: Callable[[Fits, Fits], Float[np.ndarray, " fits"]],
    of_a: tuple[FittedDirection, Fits],
    of_b: tuple[FittedDirection, Fits],
    fit: Callable[[Fits, FittedDirection], Fits] = lambda means, _of: means,
) -> PermutedP:
    """Compare a statistic of two contrasts' fits, larger for closer ones, with its values for permuted labels.

    The fits are those of the given labels, then of the permuted ones, and `fit` makes them from a contrast's
    differences in means. A p-value is NaN with too few distinct labellings.
    """
    (a, fits_a), (b, fits_b) = of_a, of_b
    one_a, null_a, one_b, null_b = fits_a[:1], fits_a[1:], fits_b[:1], fits_b[1:]
    observed, joint = float(statistic(one_a, one_b)[0]), jointly_permuted(a, b)
    if joint is None:
        both, of_pairs = statistic(null_a, null_b), a.n_labellings * b.n_labellings
        nulls = (statistic(null_a, one_b), a.n_labellings), (statistic(one_a, null_b), b.n_labellings)
        alone = [float(permutation_p(null, observed, labellings=n)) for null, n in nulls]
    else:
        means_a, means_b, of_pairs = joint
        both, alone = statistic(fit(means_a, a), fit(means_b, b)), [np.nan, np.nan]
    p_both = float(permutation_p(both, observed, labellings=of_pairs))
    return PermutedP(
        p=float(np.max(alone)) if joint is None else p_both,  # NaN if either is
        p_a=alone[0],
        p_b=alone[1],
        p_both=p_both,
        null_95=float(np.quantile(both, 0.95)),
        n=len(both),
    )


def shared_rows(a: FittedDirection, b: FittedDirection) -> Integer[np.ndarray, " shared"]:
    """Return the training rows that two contrasts share."""
    return np.intersect1d(*(f.contrast.rows[f.contrast.within("train")] for f in (a, b)))


def jointly_permuted(
    a: FittedDirection, b: FittedDirection
) -> tuple[Float[np.ndarray, "fits features"], Float[np.ndarray, "fits features"], float] | None:
    """Return both differences in means of jointly permuted labels, and the number of distinct joint labellings.

    None if the contrasts share no training row.

    Two contrasts that share samples (the same benign prompts as negatives of both) have directions with shared noise,
    so their cosine is not zero for labels without information: with equal class sizes it is near 0.5. Permuting each
    contrast's labels alone would lose this, so a sample's roles (positive, negative or absent in each) are one label.
    """
    if not len(shared_rows(a, b)):
        return None
    inside = [f.contrast.within("train") for f in (a, b)]
    rows = np.union1d(*(f.contrast.rows[i] for f, i in zip((a, b), inside, strict=True)))
    role, groups = np.zeros((2, len(rows)), dtype=int), np.empty(len(rows), dtype=object)
    for k, (f, i) in enumerate(zip((a, b), inside, strict=True)):
        at = np.searchsorted(rows, f.contrast.rows[i])
        role[k, at], groups[at] = np.where(f.contrast.y[i], 2, 1), f.contrast.groups[i]
    rng = named_rng(a.seed, "jointly permuted labels", *sorted((a.contrast.name, b.contrast.name)))
    roles = role[0] * 3 + role[1]
    drawn = permuted_labels(roles, len(a.permuted), rng, groups=groups)
    X = a.X[rows].astype(np.float64)
    # of each role, 2 is positive, 1 negative, 0 absent
    of_a, of_b = (weighted_sums(X, mean_weights(r == 2, r == 1)) for r in (drawn // 3, drawn % 3))
    return of_a, of_b, n_labellings(roles, groups=groups)
