"""Whether labels can be read from a stream by a direction, or only by products of directions.

Kernel ridge regression on the leading principal components, cross-validated over groups: a linear kernel reads what a
direction reads, a quadratic kernel also reads products of two. Each AUROC is the largest over layers, and its p-value
is from permuted labels with the same choice, so it is exact for any number of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from probes.statistics.metrics import aurocs
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng

N_COMPONENTS = 10  # products of many directions could not be fitted from some hundred samples
PENALTY = 0.1  # of the ridge, relative to the mean of the kernel's diagonal
N_FOLDS = 5
LEVEL = 0.01  # at which the quadratic read must be shown
LINEAR = 0.05  # at or below which a direction reads the labels


@dataclass(frozen=True)
class NonlinearRead:
    """The largest cross-validated AUROC over layers of each kernel, and its p-value under permuted labels."""

    linear: float
    quadratic: float
    p_linear: PValue
    p_quadratic: PValue

    @property
    def only_products(self) -> bool:
        """Whether products of directions read the labels, and no direction is shown to."""
        return self.p_quadratic <= LEVEL and self.p_linear > LINEAR


def nonlinear_read(
    layers: Sequence[Float[np.ndarray, "samples features"]],
    y: Bool[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    strata: Shaped[np.ndarray, " samples"],
    *,
    n: int = 199,
    seed: int = 0,
) -> NonlinearRead:
    """Read labels within strata from each layer of the same samples, linearly and quadratically; n permutations."""
    drawn = permuted_labels(y, n, named_rng(seed, "nonlinear read"), groups=groups, strata=strata)
    labels, (names, code) = np.vstack([y, drawn]), np.unique(groups, return_inverse=True)
    rng = named_rng(seed, "folds of the nonlinear read")
    folds = rng.permutation(np.arange(len(names)) % N_FOLDS)[code.reshape(-1)]
    centred = [_within(X, strata) for X in layers]
    kernels = [X @ X.T for X in centred]
    linear, quadratic = (
        np.max([_aurocs(kernel, labels, folds, strata) for kernel in each], axis=0)
        for each in (kernels, [kernel + kernel**2 for kernel in kernels])
    )
    labellings = n_labellings(y, groups=groups, strata=strata)
    p = [float(permutation_p(read[1:], read[0], labellings=labellings)) for read in (linear, quadratic)]
    return NonlinearRead(float(linear[0]), float(quadratic[0]), *p)


def _within(X: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Return the leading principal components of activations without their strata's means, with unit total variance."""
    X = X.astype(np.float64)
    for name in np.unique(strata):
        X[strata == name] -= X[strata == name].mean(axis=0)
    U, scale, _ = np.linalg.svd(X, full_matrices=False)
    kept = (U * scale)[:, :N_COMPONENTS]
    return kept / max(float(np.sqrt((kept**2).sum(axis=1).mean())), np.finfo(float).tiny)


def _aurocs(kernel: np.ndarray, labels: np.ndarray, folds: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Return the mean AUROC over folds of every labelling, (labellings,)."""
    target, each = labels.astype(float), []
    for name in np.unique(strata):
        target[:, strata == name] -= target[:, strata == name].mean(axis=1, keepdims=True)
    for fold in range(N_FOLDS):
        train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        ridge = kernel[np.ix_(train, train)] + PENALTY * np.trace(kernel) / len(kernel) * np.eye(len(train))
        weights = np.linalg.solve(ridge, target[:, train].T)
        scores = (kernel[np.ix_(held, train)] @ weights).T
        each.append(aurocs(scores, labels[:, held]))
    return np.nanmean(np.array(each), axis=0)
