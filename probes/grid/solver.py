"""Batched logistic regression: all fits of one locus at once, one row per fit, two shared matrix products per step.

The fits of a locus (training folds x labels x C) share their activations, so Newton's method runs on all of them
together. Each Newton system is solved by conjugate gradients in float32 for a float64 residual, which gives float64
accuracy at the cost of float32 products; with more samples than dimensions it is preconditioned by the leading
eigenvectors of X'X. Runs on the CPU with torch's threads: a GPU gained nothing (docs/notes/first-run-on-a-gpu.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real
from sklearn.exceptions import ConvergenceWarning

from probes.grid.design import Design, make_problem
from probes.grid.newton import newton


@dataclass(frozen=True)
class Fits:
    """Solutions of `fit_logistic_batch`, in the units of the activations given to it."""

    weight: Float[np.ndarray, "sets Cs features"]
    intercept: Float[np.ndarray, "sets Cs"]
    scores: Float[np.ndarray, "sets Cs samples"]  # decision function of every sample, also outside the training set
    error: Float[np.ndarray, "sets Cs"]  # upper bound of |w - w*| / |w| for standardised weights


def fit_logistic_batch(
    X: Real[np.ndarray, "samples features"],
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, "sets samples"],
    Cs: Sequence[float],
    *,
    sample_weight: Float[np.ndarray, " samples"] | None = None,
    tol: float = 3e-5,
) -> Fits:
    """Fit an L2-regularised logistic regression for every training set and every C.

    Minimises C sum_i c_i log(1 + exp(-y_i f_i)) + |w|^2 / 2 with f = w . z + b over the set's training samples, with z
    standardised on them, like `LogisticRegression(C=C)` after `StandardScaler`. A feature that is constant in a set has
    weight 0 there. The objective is strongly convex with modulus 1 in w, so |w - w*| <= |gradient|. A fit is finished
    when its gradient (at the optimal intercept) is below `tol` times |w|, or at the level of rounding, as for classes
    without a difference, where w* is zero.

    Args:
        X: activations of all samples; any float type, finite.
        train, y: the training samples of each set, and the positive ones among them.
        Cs: inverse penalties.
        sample_weight: the c_i, the same in every set; None: n / (2 n_class), as with `class_weight="balanced"`.
        tol: limit of the error bound above; ConvergenceWarning if rounding or too many steps leave one above it.

    Raises:
        ValueError: a set lacks a class, a C or a sample's weight is not positive, a sample is not finite, or `mps`.
    """
    _check(X, train, y, Cs, sample_weight)
    fits, unfinished = _fit(X, train, y, Cs, sample_weight, tol)
    for i in np.flatnonzero(unfinished.any(axis=1)) if len(train) > 1 else ():
        # Its samples are too far from those of other sets; fitted alone, they have their own centre and scale.
        alone, unfinished[[i]] = _fit(X, train[[i]], y[[i]], Cs, sample_weight, tol)
        for field, values in vars(fits).items():
            values[i] = getattr(alone, field)[0]
    if unfinished.any():
        worst = float(fits.error[unfinished].max())
        warnings.warn(
            f"{unfinished.sum()} of {unfinished.size} logistic fits stopped with a relative error bound of "
            f"up to {worst:.1e}, not {tol:.0e}",
            ConvergenceWarning,
            stacklevel=2,
        )
    return fits


def _fit(
    X: np.ndarray,
    train: np.ndarray,
    y: np.ndarray,
    Cs: Sequence[float],
    sample_weight: np.ndarray | None,
    tol: float,
) -> tuple[Fits, Bool[np.ndarray, "sets Cs"]]:
    design = Design.of(X, train)
    problem = make_problem(design, train, y, Cs, sample_weight)
    w, b, error, unfinished = newton(design, problem, tol, alone=len(train) == 1)
    shape = len(train), len(Cs)
    u, b = (w * problem.inverse_scale).reshape(*shape, -1), b.reshape(shape)
    weight = u / design.scale
    fits = Fits(
        weight=weight.numpy(),
        intercept=(b - weight @ design.mean).numpy(),
        scores=(u @ design.X.T + b[..., None]).numpy(),
        error=error.reshape(shape).numpy(),
    )
    return fits, unfinished.reshape(shape).numpy()


def _check(
    X: np.ndarray,
    train: np.ndarray,
    y: np.ndarray,
    Cs: Sequence[float],
    sample_weight: np.ndarray | None,
) -> None:
    if not len(Cs) or not all(0 < C < np.inf for C in Cs):
        raise ValueError(f"every C must be positive and finite, got {list(Cs)}")
    if len(bad := np.flatnonzero(~np.isfinite(X).all(axis=1))):
        raise ValueError(
            f"every sample must be finite, also outside the training sets; {len(bad)} of {len(X)} have "
            f"NaN or inf, the first at index {bad[0]}"
        )
    if sample_weight is not None and not ((sample_weight > 0) & np.isfinite(sample_weight)).all():
        raise ValueError(f"sample weights must be positive and finite; the smallest is {np.min(sample_weight)}")
    positive, total = (train & y).sum(axis=1), train.sum(axis=1)
    for i in np.flatnonzero((positive == 0) | (positive == total)):
        raise ValueError(
            f"a logistic fit needs both classes; training set {i} has {positive[i]} positive of {total[i]}"
        )
