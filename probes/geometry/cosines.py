"""Cosines between contrast directions at one locus: fitted, corrected for sampling noise, and with a permutation null.

A fitted difference in means is the true one plus noise, and in many dimensions most of its length is noise. Its squared
length exceeds the true one by the trace of its covariance; the product of two fits exceeds the true product by the
trace of their cross-covariance (zero unless they share groups). Groups are replicates, so both traces are estimated and
subtracted: Spearman's (1904) correction for attenuation, over all pairs of groups. For minimal pairs the product and
both squared lengths are unbiased (U-statistics), otherwise nearly so; their ratio is consistent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import t as student

from probes.geometry.fitted_direction import FittedDirection, PermutedP, against_permuted, check_same_locus, shared_rows
from probes.means import mean_weights
from probes.statistics.intervals import NO_DIFFERENCE, Estimate, Number


@dataclass(frozen=True, kw_only=True)
class Cosine(PermutedP):
    """The cosine of two contrasts' directions; p-values are two-sided, of the absolute fitted cosine.

    `fitted` is the cosine of the two fitted vectors. Sampling noise biases it towards 0 (or, if the contrasts share
    rows, towards a value caused by those rows), so it does not estimate the cosine of the true directions. `noise_free`
    does; its interval is over groups. `reliability_a` and `_b` are the noise-free shares of the squared lengths.
    """

    a: str
    b: str
    fitted: float
    noise_free: Estimate
    reliability_a: Number
    reliability_b: Number
    n_shared: int


def compare_directions(a: FittedDirection, b: FittedDirection) -> Cosine:
    """Return the cosine of two contrasts' directions with its null."""
    check_same_locus(a, b)
    free, reliability = noise_free_cosine(a, b)
    return Cosine(
        **vars(against_permuted(lambda u, v: np.abs(_cosines(u, v)), (a, a.means()), (b, b.means()))),
        a=a.contrast.name,
        b=b.contrast.name,
        fitted=float(_cosines(a.vector[None], b.vector[None])[0]),
        noise_free=free,
        reliability_a=reliability[0],
        reliability_b=reliability[1],
        n_shared=len(shared_rows(a, b)),
    )


def _cosines(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the cosines of rows; the cosine with a zero row is 0."""
    length = np.linalg.norm(u, axis=-1) * np.linalg.norm(v, axis=-1)
    return (u * v).sum(axis=-1) / np.where(length > 0, length, 1.0)


def noise_free_cosine(a: FittedDirection, b: FittedDirection) -> tuple[Estimate, tuple[float, ...]]:
    """Return the noise-free cosine with its jackknife interval over groups, and both reliabilities.

    The interval is [-1, 1] if a squared length is not significantly above zero, since the ratio is then undefined. The
    reliability of a direction is the noise-free share of its squared length; the fitted cosine is close to the
    noise-free one times the square root of both reliabilities. Groups have the same names in all contrasts.
    """
    fits = a, b
    names = np.unique(np.concatenate([f.contrast.groups[f.contrast.within("train")] for f in fits]))
    parts = [_influences(f, names) for f in fits]
    pairs = ((0, 1), (0, 0), (1, 1))
    product, *lengths = (_products(fits[i].vector, fits[j].vector, parts[i], parts[j]) for i, j in pairs)
    crosses = [len(parts[i]) ** 2 * (parts[i] @ parts[j].T) for i, j in pairs]
    kernels = [(cross + cross.T) / 2 for cross in crosses]  # the second-order term of each pair of groups in a product
    squares = [float(length[0]) for length in lengths]
    reliability = tuple(square / float(f.vector @ f.vector) for square, f in zip(squares, fits, strict=True))
    degrees = min(int((part != 0).any(axis=1).sum()) for part in parts) - 1
    if degrees < 3 or min(squares) <= 0:
        return NO_DIFFERENCE, reliability
    quantile = float(student.ppf(0.975, degrees))
    scale = float(np.sqrt(squares[0] * squares[1]))
    estimate = float(product[0]) / scale
    shown = [length[0] > quantile * _error(length[1:], k) for length, k in zip(lengths, kernels[1:], strict=True)]
    if not all(shown):
        return Estimate(float(np.clip(estimate, -1, 1)), -1.0, 1.0), reliability
    without = (product / np.sqrt(np.maximum(lengths[0] * lengths[1], (1e-6 * scale) ** 2)))[1:]
    kernel = kernels[0] / scale - estimate / 2 * (kernels[1] / squares[0] + kernels[2] / squares[1])
    half = quantile * _error(without, kernel)
    clipped = np.clip([estimate, estimate - half, estimate + half], -1, 1).tolist()
    return Estimate(*clipped), reliability


def _influences(f: FittedDirection, names: np.ndarray) -> np.ndarray:
    """Return each group's influence on the difference in means, (n_groups, d_model), as in a stratified cluster sample.

    Within their kind (both classes, positive only, negative only) groups are centred, and scaled so that the sum of
    squares times G / (G - 1) estimates the trace of the covariance.
    """
    X, y, groups = f.samples("train")
    for side in (y, ~y):
        X[side] -= X[side].mean(axis=0)
    code, G = np.searchsorted(names, groups), len(names)
    influence = csr_array((mean_weights(y, ~y), (code, np.arange(len(y)))), shape=(G, len(y))) @ X
    size, positive = np.bincount(code, minlength=G), np.bincount(code, weights=y, minlength=G)
    for kind in ((positive > 0) & (positive < size), (positive == size) & (size > 0), (positive == 0) & (size > 0)):
        if (g := int(kind.sum())) > 1:
            influence[kind] -= influence[kind].mean(axis=0)
            influence[kind] *= np.sqrt(g / (g - 1) * (G - 1) / G)
    return influence


def _products(u: np.ndarray, v: np.ndarray, du: np.ndarray, dv: np.ndarray) -> np.ndarray:
    """Return the unbiased product of two true vectors, first over all groups, then without each; (1 + n_groups,).

    With one value z_g = u + G du_g per group, the product is the mean of z_g . w_h over pairs of different groups.
    """
    G = len(du)
    own = (du * dv).sum(axis=1)
    square = G * (u @ v) + G**2 * own.sum()  # sum of z_g . w_g
    whole = (G**2 * (u @ v) - square) / (G * (G - 1))
    cross = (G - 1) ** 2 * (u @ v) - (G - 1) * G * (du @ v + dv @ u) + G**2 * own
    itself = u @ v + G * (du @ v + dv @ u) + G**2 * own
    return np.concatenate([[whole], (cross - (square - itself)) / ((G - 1) * (G - 2))])


def _error(without: np.ndarray, kernel: np.ndarray) -> float:
    """Return the standard error from leave-one-out values, less the second-order variance, which `kernel` estimates.

    In many dimensions it is most of the variance, and the jackknife counts it twice (Efron & Stein 1981).
    """
    G = len(without)
    jackknife = (G - 1) / G * float(((without - without.mean()) ** 2).sum())
    off = float((kernel**2).sum() - (np.diag(kernel) ** 2).sum()) / (G * (G - 1))
    second = 2 / (G * (G - 1)) * off
    return float(np.sqrt(max(jackknife - second, second)))
