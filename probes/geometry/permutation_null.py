"""Permutation nulls of a statistic of two contrasts, with the labels of one, the other, or both permuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from probes.geometry.fitted_direction import Fit, FittedDirection, vectors
from probes.means import difference_in_means, mean_weights, weighted_sums
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True)
class PermutedP:
    """P-values for two contrasts' directions being closer than those of permuted labels.

    Report `p`, the larger of `p_a` and `p_b`: a small `p` excludes that *either* label is unrelated to the activations.
    `p_both` excludes only that both are unrelated: if one direction is real and lies along the stream's largest
    component, any noise correlates with it, and `p_both` is small even for a second label without information. Permuted
    directions follow whatever varies most, including the contrasts' own axes, so a strong contrast in few dimensions
    has a wide null. Contrasts that share training rows are permuted together (`jointly_permuted`); then `p` is `p_both`
    and the others are NaN.
    """

    p: PValue
    p_a: PValue  # labels of a permuted, b fixed
    p_b: PValue
    p_both: PValue
    null_95: float  # 95 % quantile over pairs of permuted directions
    n: int


Fits = Float[np.ndarray, "..."]  # (permutations or 1, ...) fitted vectors or subspaces
Statistic = Callable[[Fits, Fits], Float[np.ndarray, " permutations"]]


class JointNull(NamedTuple):
    """Fits of two contrasts on jointly permuted labels, and the number of distinct joint labellings."""

    a: Float[np.ndarray, "permutations ..."]
    b: Float[np.ndarray, "permutations ..."]
    n_labellings: float


def against_permuted(
    statistic: Statistic,
    of_a: tuple[Float[np.ndarray, ...], Float[np.ndarray, "permutations ..."]],
    of_b: tuple[Float[np.ndarray, ...], Float[np.ndarray, "permutations ..."]],
    of_both: JointNull | None = None,
    labellings: tuple[float, float] = (float("inf"), float("inf")),
) -> PermutedP:
    """Compare a statistic of two fits, larger for closer fits, with its values for permuted labels.

    Args:
        of_a, of_b: the fit of each contrast, and its fits on permuted labels.
        of_both: fits of both on jointly permuted labels, if the contrasts share rows.
        labellings: number of distinct labellings of a and of b; a p-value is NaN where they are too few.
    """
    (a, null_a), (b, null_b) = of_a, of_b
    observed = float(statistic(a[None], b[None])[0])
    both = statistic(null_a, null_b) if of_both is None else statistic(of_both.a, of_both.b)
    of_pairs = labellings[0] * labellings[1] if of_both is None else of_both.n_labellings
    p_both = float(permutation_p(both, observed, labellings=of_pairs))
    alone = [np.nan, np.nan]
    if of_both is None:
        nulls = statistic(null_a, b[None]), statistic(a[None], null_b)
        alone = [float(permutation_p(null, observed, labellings=n)) for null, n in zip(nulls, labellings, strict=True)]
    return PermutedP(
        p=float(np.max(alone)) if of_both is None else p_both,  # NaN if either is
        p_a=alone[0],
        p_b=alone[1],
        p_both=p_both,
        null_95=float(np.quantile(both, 0.95)),
        n=len(both),
    )


def shared_rows(a: FittedDirection, b: FittedDirection) -> Integer[np.ndarray, " shared"]:
    """Return the training rows that two contrasts share."""
    return np.intersect1d(*(f.contrast.rows[f.contrast.within("train")] for f in (a, b)))


def jointly_permuted(a: FittedDirection, b: FittedDirection, *, of_means: bool = False) -> JointNull | None:
    """Fit both contrasts on jointly permuted labels; None if they share no training row.

    Two contrasts that share samples (the same benign prompts as negatives of both) have directions with shared noise,
    so their cosine is not zero for labels without information: with equal class sizes it is near 0.5. Permuting each
    contrast's labels alone would lose this. So the pair of roles of a sample (positive, negative or absent in each) is
    permuted as one label, by the same rule as all labels (`permuted_labels`).

    Args:
        of_means: use differences in means, independent of the contrasts' own fits.
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
    fits = [difference_in_means if of_means else f.fit for f in (a, b)]
    of_a, of_b = _fit_roles(X, drawn // 3, fits[0]), _fit_roles(X, drawn % 3, fits[1])
    return JointNull(of_a, of_b, n_labellings(roles, groups=groups))


def _fit_roles(X: np.ndarray, roles: np.ndarray, fit: Fit) -> np.ndarray:
    """Fit one vector per row of roles: 2 positive, 1 negative, 0 absent."""
    if fit is not difference_in_means:
        return np.stack([vectors(X[r > 0], (r == 2)[None, r > 0], fit)[0] for r in roles])
    return weighted_sums(X, mean_weights(roles == 2, roles == 1))
