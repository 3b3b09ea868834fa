"""A contrast's direction at one locus, and the directions of its permuted labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real, Shaped

from probes.contrast import Contrast
from probes.means import difference_in_means, differences_in_means
from probes.statistics.permutation import n_labellings, permuted_labels
from probes.statistics.seeds import named_rng

Samples = tuple[Float[np.ndarray, "samples features"], Bool[np.ndarray, " samples"], Shaped[np.ndarray, " samples"]]
Fit = Callable[[Float[np.ndarray, "samples features"], Bool[np.ndarray, " samples"]], Float[np.ndarray, " features"]]


@dataclass(frozen=True)
class FittedDirection:
    """The direction fitted on a contrast's training rows at one locus; vectors point to the declining class."""

    X: Real[np.ndarray, "samples features"]  # indexed by the contrast's rows
    contrast: Contrast
    vector: Float[np.ndarray, " features"]
    labels: Bool[np.ndarray, "fits train"]  # the given labels, then permuted ones
    permuted: Float[np.ndarray, "permutations features"]  # directions fitted on permuted labels
    fit: Fit
    seed: int
    n_labellings: float = float("inf")  # distinct labellings behind `permuted`

    def samples(self, part: str) -> Samples:
        """Return X (float64), y and groups of one part."""
        return samples_of(self.X, self.contrast, part)

    def means(self) -> Float[np.ndarray, "fits features"]:
        """Return the differences in means of the given labels, then of the permuted ones."""
        if self.fit is difference_in_means:
            return np.vstack([self.vector, self.permuted])
        return vectors(self.samples("train")[0], self.labels)


def fit_with_null(
    X: Shaped[np.ndarray, ...], contrast: Contrast, *, fit: Fit = difference_in_means, n: int = 199, seed: int = 0
) -> FittedDirection:
    """Fit a contrast's direction on its training rows, and on each of n permuted labellings.

    The random stream depends on the contrast's name, so two contrasts of one shape are permuted independently.

    Args:
        X: (samples, features) activations of one locus; only the contrast's rows must be finite.
        fit: any (X, y) -> vector. It is called once per labelling, except the difference in means, for which all
            labellings are one matrix product.
        n: the number of permuted labellings.
        seed: of the permutations.

    Raises:
        ValueError: shapes disagree, a value in the contrast's rows is not finite, a class has no training row, or the
            fitted vector is zero.
    """
    _check(X, contrast, n)
    train, y, groups = samples_of(X, contrast, "train")
    if y.all() or not y.any():
        raise ValueError(
            f"contrast {contrast.name!r} needs both classes in its train part; got {int(y.sum())} positive of {len(y)}"
        )
    drawn = permuted_labels(y, n, named_rng(seed, "permuted labels", contrast.name), groups=groups)
    labels = np.vstack([y, drawn])
    fitted = vectors(train, labels, fit)
    if not np.isfinite(fitted).all() or not fitted[0].any():
        raise ValueError(
            f"the direction of contrast {contrast.name!r} is zero or not finite; check that its class means differ"
        )
    return FittedDirection(X, contrast, fitted[0], labels, fitted[1:], fit, seed, n_labellings(y, groups=groups))


def vectors(
    X: Float[np.ndarray, "samples features"], ys: Bool[np.ndarray, "labellings samples"], fit: Fit = difference_in_means
) -> Float[np.ndarray, "labellings features"]:
    """Fit one vector per labelling."""
    if fit is difference_in_means:
        return differences_in_means(X, ys)
    return np.stack([np.asarray(fit(X, y), dtype=np.float64) for y in ys])


def held_out(b: FittedDirection) -> Samples:
    """Return centred X, y and groups of the test part.

    Raises:
        ValueError: the test part lacks a class.
    """
    X, y, groups = b.samples("test")
    if y.all() or not y.any():
        raise ValueError(
            f"contrast {b.contrast.name!r} needs both classes in its test part; got {int(y.sum())} positive of {len(y)}"
        )
    return X - X.mean(axis=0), y, groups


def samples_of(X: Real[np.ndarray, "all features"], contrast: Contrast, part: str) -> Samples:
    """Return X (float64), y and groups of one part of a contrast."""
    inside = contrast.within(part)
    rows = X[contrast.rows[inside]].astype(np.float64, copy=False)
    return rows, contrast.y[inside], contrast.groups[inside]


def check_same_locus(a: FittedDirection, b: FittedDirection) -> None:
    """Refuse directions of two loci, because their coordinates are not comparable.

    Raises:
        ValueError: the two were not fitted on the same activations.
    """
    if a.X is not b.X:
        raise ValueError(
            f"{a.contrast.name!r} and {b.contrast.name!r} were fitted on different arrays; "
            "compare only directions of one locus, fitted on the same X"
        )


def check_no_leakage(a: Contrast, b: Contrast, part: str = "test") -> None:
    """Refuse to test on groups that are in the training part.

    Raises:
        ValueError: a group is in the training part of one contrast and in the given part of the other.
    """
    both = set(a.groups[a.within("train")].tolist()) & set(b.groups[b.within(part)].tolist())
    if both:
        raise ValueError(
            f"{len(both)} groups are in the train part of {a.name!r} and the {part} part of {b.name!r}, "
            f"such as {min(map(str, both))!r}; put a group into one part in all contrasts"
        )


def _check(X: np.ndarray, contrast: Contrast, n: int) -> None:
    if X.ndim != 2:
        raise ValueError(f"X must be (n_samples, d_model); got shape {X.shape}")
    if len(contrast.rows) and not 0 <= contrast.rows.min() <= contrast.rows.max() < len(X):
        raise ValueError(f"contrast {contrast.name!r} uses rows outside the {len(X)} samples of X")
    if n < 19:
        raise ValueError(f"a null needs at least 19 permutations to reach p = 0.05; got {n}")
    if not np.isfinite(X[contrast.rows]).all():
        raise ValueError(f"the rows of contrast {contrast.name!r} have NaN or infinite activations; leave them out")
