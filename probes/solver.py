"""All logistic fits of one locus at once: a row a fit, and every step two matrix products they share.

The fits of a locus (training folds x labels x C) differ in their rows, labels and penalty, never in their activations.
So Newton's method runs on all of them together: the activations are read once a step for as many fits as are still
open. Each Newton system is solved by conjugate gradients in float32 and applied to a float64 residual, which gives
float64 answers at the price of float32 products. Runs wherever torch does; on a CPU it takes torch's threads.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

TINY = 1e-300
MAX_NEWTON = 100
MAX_CG = 1000
MAX_START = 12
MAX_INTERCEPT = 50

Inner = Literal["gram", "rounded", "exact"]  # how Newton systems are solved, from fast to exact


@dataclass(frozen=True)
class Fits:
    """Solutions of `fit_logistic_batch`, in the units of the activations given to it."""

    weight: Float[np.ndarray, "sets Cs d_model"]
    intercept: Float[np.ndarray, "sets Cs"]
    scores: Float[np.ndarray, "sets Cs n_samples"]  # decision function of every sample, also those left out of a fit
    error: Float[np.ndarray, "sets Cs"]  # a bound of |w - w*| / |w|, both standardised


def fit_logistic_batch(
    X: Float[np.ndarray, "n_samples d_model"],
    train: Bool[np.ndarray, "sets n_samples"],
    y: Bool[np.ndarray, "sets n_samples"],
    Cs: Sequence[float],
    *,
    sample_weight: Float[np.ndarray, " n_samples"] | None = None,
    tol: float = 3e-5,
    device: str | torch.device = "cpu",
) -> Fits:
    """Fit an L2-regularised logistic regression for every training set and every C.

    Minimises C sum_i c_i log(1 + exp(-y_i f_i)) + |w|^2 / 2 with f = w . z + b over the set's training samples, z
    standardised on them: what `LogisticRegression(C=C)` after `StandardScaler` minimises. A feature
    constant in a set has weight 0 there.

    The penalty makes the objective strongly convex with modulus 1 in w, so |w - w*| <= |gradient|: a fit is done when
    its gradient (the intercept being optimal) is below `tol` times |w|. (Or no more than its own
    rounding: where nothing tells the classes apart, w* is zero and what is found of it are rounding errors.)

    Args:
        X: activations of all samples, read once; any float type, finite.
        train: which samples each set is fitted on.
        y: which samples are positive in each set; only those of `train` matter.
        sample_weight: the c_i, the same in every set. Without them both classes count the same in each set: c_i is
            n / (2 n_class), as of `class_weight="balanced"`.
        tol: of the bound above.
        device: where to compute; it must know float64.

    Raises:
        ValueError: a set lacks a class, a C or a sample's weight is not positive, or a sample is not finite.

    Warns:
        ConvergenceWarning: rounding, or too many steps, stood in the way of `tol`; see `error`.
    """
    _check(X, train, y, Cs, sample_weight)
    fits, unfinished = _fit(X, train, y, Cs, sample_weight, tol, device)
    for i in np.flatnonzero(unfinished.any(axis=1)) if len(train) > 1 else ():
        # Its samples are too far from those of other sets; alone they are centred and scaled by their own.
        alone, unfinished[[i]] = _fit(X, train[[i]], y[[i]], Cs, sample_weight, tol, device)
        for field, values in vars(fits).items():
            values[i] = getattr(alone, field)[0]
    if unfinished.any():
        worst = float(fits.error[unfinished].max())
        warnings.warn(f"{unfinished.sum()} of {unfinished.size} logistic fits stopped with a relative error bound of "
                      f"up to {worst:.1e}, not {tol:.0e}", ConvergenceWarning, stacklevel=2)  # fmt: skip
    return fits


def _fit(
    X: np.ndarray,
    train: np.ndarray,
    y: np.ndarray,
    Cs: Sequence[float],
    sample_weight: np.ndarray | None,
    tol: float,
    device: str | torch.device,
) -> tuple[Fits, Bool[np.ndarray, "sets Cs"]]:
    """Return the fits and which of them are unfinished."""
    design = _Design.of(X, train, device)
    problem = _problem(design, train, y, Cs, sample_weight)
    w, b, error, open_ = _newton(design, problem, tol, alone=len(train) == 1)
    unfinished = np.zeros(len(w), dtype=bool)
    unfinished[open_.cpu().numpy()] = True
    n_sets, n_C = len(train), len(Cs)
    u = (w * problem.inverse_scale).reshape(n_sets, n_C, -1)
    b = b.reshape(n_sets, n_C)
    weight = u / design.scale
    fits = Fits(
        weight=weight.cpu().numpy(),
        intercept=(b - weight @ design.mean).cpu().numpy(),
        scores=(u @ design.X.T + b[..., None]).cpu().numpy(),
        error=error.reshape(n_sets, n_C).cpu().numpy(),
    )
    return fits, unfinished.reshape(n_sets, n_C)


def _check(
    X: np.ndarray, train: np.ndarray, y: np.ndarray, Cs: Sequence[float], sample_weight: np.ndarray | None
) -> None:
    if not len(Cs) or not all(0 < C < np.inf for C in Cs):
        raise ValueError(f"every C must be positive and finite, got {list(Cs)}")
    if len(bad := np.flatnonzero(~np.isfinite(X).all(axis=1))):
        raise ValueError(f"every sample must be finite, those that no set is fitted on too; {len(bad)} of {len(X)} "
                         f"have NaN or inf, the first at index {bad[0]}")  # fmt: skip
    if sample_weight is not None and not ((sample_weight > 0) & np.isfinite(sample_weight)).all():
        raise ValueError(f"every sample's weight must be positive and finite; the least is {np.min(sample_weight)}")
    positive, total = (train & y).sum(axis=1), train.sum(axis=1)
    for i in np.flatnonzero((positive == 0) | (positive == total)):
        raise ValueError(
            f"a logistic fit needs both classes; training set {i} has {positive[i]} positive of {total[i]}"
        )


@dataclass(frozen=True)
class _Design:
    """The activations, centred and scaled by all training sets: exact in float64, and rounded for the inner products.

    A sample counts as often as it is in a training set, so that one in none, however far out, costs no accuracy, and
    the scales of a single training set are its own.
    """

    X: Tensor  # (n_samples, d_model) float64
    rounded: Tensor  # the same, float32
    gram: Tensor | None  # rounded @ rounded.T, float32, where there are not many more samples than dimensions
    mean: Tensor
    scale: Tensor
    inverse_scale: Tensor  # (sets, d_model): 1 / standard deviation over each training set; 0 where constant

    @classmethod
    def of(cls, X: np.ndarray, train: np.ndarray, device: str | torch.device) -> _Design:
        wide = torch.as_tensor(np.require(X, requirements=("C", "W"))).to(device, torch.float64, copy=True)
        inside = _double(train, device)
        used = inside.sum(dim=0) / inside.sum()
        mean = used @ wide
        wide -= mean
        square = wide.square()
        variance = used @ square
        scale = torch.where(_constant(variance, mean, len(wide)), torch.ones_like(variance), variance.sqrt())
        square = inside @ square / scale**2
        wide /= scale
        rounded = wide.float()
        gram = _gram(rounded) if len(wide) <= 1.5 * wide.shape[1] else None
        return cls(wide, rounded, gram, mean, scale, _inverse_scales(wide, inside, square, mean / scale))

    @cached_property
    def transposed(self) -> Tensor:
        """The transpose, contiguous: products with few rows are several times faster so."""
        return self.rounded.T.contiguous()


def _gram(X: Tensor, blocks: int = 4) -> Tensor:
    """Return X X', a block row at a time up to the diagonal: torch has no product that knows it is symmetric.

    (numpy has one, but its threads and torch's then wait for each other, which costs more than is saved.)
    """
    gram = X.new_empty(len(X), len(X))
    edges = [len(X) * i // blocks for i in range(blocks + 1)]
    for start, stop in itertools.pairwise(edges):
        gram[start:stop, :stop] = X[start:stop] @ X[:stop].T
        gram[:start, start:stop] = gram[start:stop, :start].T
    return gram


def _constant(variance: Tensor, mean: Tensor, n: Tensor | int) -> Tensor:
    """Say which variances are rounding errors of a constant (the bound of scikit-learn's StandardScaler)."""
    eps = torch.finfo(torch.float64).eps
    return variance <= n * eps * variance + (n * mean * eps) ** 2


@dataclass
class _Problem:
    """Row by row, what each fit minimises; rows are (set, C) pairs, C fastest."""

    inverse_scale: Tensor  # (fits, d_model): 1 / standard deviation of the training samples; 0 where constant
    cost: Tensor  # (fits, n_samples): C times the sample's weight; 0 off the training set
    target: Tensor  # (fits, n_samples): 1 for positive samples

    def rows(self, keep: Tensor) -> _Problem:
        return _Problem(self.inverse_scale[keep], self.cost[keep], self.target[keep])

    def rounded(self) -> _Problem:
        return _Problem(self.inverse_scale.float(), self.cost.float(), self.target.float())


def _problem(
    design: _Design, train: np.ndarray, y: np.ndarray, Cs: Sequence[float], sample_weight: np.ndarray | None
) -> _Problem:
    device = design.X.device
    inside, target = _double(train, device), _double(train & y, device)
    if sample_weight is None:
        n, positive = (side.sum(dim=1, keepdim=True) for side in (inside, target))
        weight = torch.where(target > 0, n / (2 * positive), n / (2 * (n - positive)))
    else:
        weight = _double(sample_weight, device)
    penalty = torch.tensor(list(Cs), dtype=torch.float64, device=device).repeat(len(train))[:, None]
    return _Problem(
        inverse_scale=design.inverse_scale.repeat_interleave(len(Cs), dim=0),
        cost=(inside * weight).repeat_interleave(len(Cs), dim=0) * penalty,
        target=target.repeat_interleave(len(Cs), dim=0),
    )


def _double(values: np.ndarray, device: str | torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


def _inverse_scales(X: Tensor, inside: Tensor, square: Tensor, offset: Tensor) -> Tensor:
    """Return 1 / standard deviation of each feature over each training set, (sets, d_model); 0 where constant.

    `offset` is what X was before it was centred; what is a rounding error of a constant depends on that.
    """
    n = inside.sum(dim=1, keepdim=True)
    mean = inside @ X / n
    variance = square / n - mean**2
    for i, j in enumerate(variance < 1e-6):  # far below the variance of all sets: cancelled, so again in two passes
        if j.any():
            some = X[inside[i] > 0][:, j]
            variance[i, j] = (some - some.mean(dim=0)).square().mean(dim=0)
    return torch.where(_constant(variance, mean.abs() + offset.abs(), n), torch.zeros_like(variance), variance.rsqrt())


def _shared_start(design: _Design, problem: _Problem, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the problem with the scales of all sets, roughly: coefficients (fits, n_samples), intercepts (fits, 1).

    There a step costs products with the Gram matrix only, in float32; the standard deviations of a fold differ from
    those of all sets by a few per cent, so the solution is near.
    """
    space, rough = _Space(design, problem.inverse_scale, "gram"), problem.rounded()
    a = torch.zeros_like(rough.cost)
    f, b, open_ = torch.zeros_like(a), a.new_zeros(len(a), 1), torch.arange(len(a), device=a.device)
    found_a, found_b = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(MAX_START):
        b, gradient, curvature = _intercept(rough, f, b)
        residual = -(a + gradient)
        norm = space.square(residual, residual @ gram).sqrt()
        error = norm / space.square(a, f).sqrt().clamp_min(1e-30)
        found_a[open_], found_b[open_] = a, b
        keep = (error > 0.03).flatten()
        if not keep.any():
            break
        rough, (open_, a, b, f, residual, norm, error, curvature) = (
            rough.rows(keep), (t[keep] for t in (open_, a, b, f, residual, norm, error, curvature)))  # fmt: skip
        step = norm * _conjugate_gradients(space, curvature, residual / norm, error.clamp(max=0.1))
        along = step @ gram
        shift = _mean(curvature, along)
        length = _line_search(rough, space.square(a, along), space.square(step, along), f + b, along - shift)
        a, f, b = a + length * step, f + length * along, b - length * shift
    return found_a.double(), found_b.double()


def _mean(weight: Tensor, values: Tensor) -> Tensor:
    """Return each row's weighted mean, (fits, 1)."""
    return (weight * values).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True).clamp_min(_tiny(weight))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny


def _newton(design: _Design, problem: _Problem, tol: float, alone: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights (fits, d_model), intercepts (fits,), error bounds (fits,) and the unfinished fits' indices.

    Weights are standardised, intercepts centred. Systems are solved in float64 only where a set is `alone`.
    """
    fits = len(problem.cost)
    done = [problem.cost.new_zeros(size) for size in ((fits, design.X.shape[1]), (fits, 1), (fits, 1))]
    open_ = torch.arange(fits, device=problem.cost.device)
    w, b, a, f = torch.zeros_like(done[0]), torch.zeros_like(done[1]), None, torch.zeros_like(problem.cost)
    if design.gram is not None:
        a, b = _shared_start(design, problem, design.gram)
        w = (a @ design.X) * problem.inverse_scale  # and so throughout, while systems are solved in coefficients a
        f = (w * problem.inverse_scale) @ design.X.T
        better = _objective(problem, w, f, b) < _objective(problem, *map(torch.zeros_like, (w, f, b)))
        a, w, f, b = (torch.where(better, t, 0) for t in (a, w, f, b))  # scales may differ much more
    last: Tensor = torch.full_like(b, torch.inf)
    inner: Inner = "rounded" if a is None else "gram"
    for _ in range(MAX_NEWTON):
        b, gradient, curvature = _intercept(problem, f, b)
        residual = -torch.addcmul(w, gradient @ design.X, problem.inverse_scale)
        norm = residual.norm(dim=1, keepdim=True)
        error = norm / w.norm(dim=1, keepdim=True).clamp_min(TINY)
        rounding = torch.finfo(f.dtype).eps * design.X.numel() ** 0.5 * gradient.norm(dim=1, keepdim=True)
        keep = ~((error <= tol) | (norm <= rounding)).flatten()  # NaN is kept
        for into, value in zip(done, (w, b, error), strict=True):
            into[open_] = value
        stuck = inner != "exact" and bool((error > torch.where(last < 0.1, 0.5, 0.99) * last)[keep].any())
        if not keep.any() or (stuck and inner == "rounded" and not alone):
            open_ = open_[keep]
            break
        if stuck:
            inner, a = ("rounded" if inner == "gram" else "exact"), None  # what is approximate in it stands in the way
        if not keep.all():
            problem, last, error = problem.rows(keep), last[keep], error[keep]
            open_, w, b, f, gradient, curvature, residual, norm = (
                t[keep] for t in (open_, w, b, f, gradient, curvature, residual, norm)
            )
            a = None if a is None else a[keep]
        last = error
        forcing = error.clamp(max=0.1).clamp_min(tol / 2 / error).clamp(max=0.5)
        space = _Space(design, problem.inverse_scale, inner)
        right = residual if a is None else -(a + gradient)
        solution = norm * _conjugate_gradients(space, curvature, right / norm, forcing)
        solution = torch.where(solution.isfinite().all(dim=1, keepdim=True), solution, 0)
        step = solution if a is None else (solution @ design.X) * problem.inverse_scale
        along = (step * problem.inverse_scale) @ design.X.T
        shift = _mean(curvature, along)
        ws, ss = ((w * step).sum(dim=1, keepdim=True), (step * step).sum(dim=1, keepdim=True))
        length = _line_search(problem, ws, ss, f + b, along - shift)
        w, f, b = torch.addcmul(w, length, step), torch.addcmul(f, length, along), b - length * shift
        a = None if a is None else torch.addcmul(a, length, solution)
    return done[0], done[1].flatten(), done[2].flatten(), open_


def _objective(problem: _Problem, w: Tensor, f: Tensor, b: Tensor) -> Tensor:
    f = f + b
    loss = torch.nn.functional.softplus(f) - problem.target * f
    return (problem.cost * loss).sum(dim=1, keepdim=True) + (w * w).sum(dim=1, keepdim=True) / 2


def _intercept(problem: _Problem, f: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Optimise the intercepts at fixed weights; return them, the loss gradient by sample (its sum 0) and curvature."""
    for _ in range(MAX_INTERCEPT):
        p = torch.sigmoid(f + b)
        gradient = problem.cost * (p - problem.target)
        curvature = problem.cost * (p * (1 - p))
        move = gradient.sum(dim=1, keepdim=True) / curvature.sum(dim=1, keepdim=True).clamp_min(_tiny(f))
        b = b - move.clamp(-1, 1)
        if float(move.abs().max()) < torch.finfo(f.dtype).eps ** 0.5:
            break
    return b, torch.addcmul(gradient, curvature, move, value=-1), curvature


class _Space:
    """Where a Newton system is solved: as weights, exactly, or as coefficients of samples, through their Gram matrix.

    In weights v the matrix is I + S X' D X S with a fit's own scales S. In coefficients a, standing for v = S X' a, it
    is I + D K with K = X S S X', self-adjoint in the inner product a' K a (Chapelle 2007, Training a support vector
    machine in the primal). There K is taken with the scales of all sets: one matrix for every fit of the locus,
    and wrong by the few per cent that the standard deviations of folds differ, which costs a Newton step or two.
    """

    def __init__(self, design: _Design, inverse_scale: Tensor, kind: Inner) -> None:
        self._design, self.kind = design, kind
        self.dtype = torch.float64 if kind == "exact" else torch.float32
        self._scale = inverse_scale.to(self.dtype)

    def image(self, v: Tensor) -> Tensor:
        """Return f, (fits, n_samples), of what v stands for."""
        if self.kind == "gram":
            return v @ self._design.gram
        return (v * self._scale) @ (self._design.X.T if self.kind == "exact" else self._design.transposed)

    def pull_back(self, u: Tensor) -> Tensor:
        """Return the adjoint of `image` on (fits, n_samples)."""
        if self.kind == "gram":
            return u
        return (u @ (self._design.X if self.kind == "exact" else self._design.rounded)).mul_(self._scale)

    def square(self, v: Tensor, image: Tensor) -> Tensor:
        """Return the squared norm, (fits, 1), of what v stands for."""
        return (v * (image if self.kind == "gram" else v)).sum(dim=1, keepdim=True)

    def rows(self, keep: Tensor) -> _Space:
        """Return the same of some of the fits."""
        return _Space(self._design, self._scale if self.kind == "gram" else self._scale[keep], self.kind)


def _conjugate_gradients(space: _Space, curvature: Tensor, residual: Tensor, forcing: Tensor) -> Tensor:
    """Solve (I + D) x = residual in a space, D the centred curvature, until the norm is below forcing, (fits, 1)."""
    D, r, stop = curvature.to(space.dtype), residual.to(space.dtype), forcing.to(space.dtype) ** 2
    total = D.sum(dim=1, keepdim=True).clamp_min(_tiny(D))
    solved, live = torch.zeros_like(r), torch.arange(len(r), device=r.device)
    x, image = torch.zeros_like(r), space.image(r)
    d, along, rr = r, image, space.square(r, image)
    for _ in range(MAX_CG):
        going = (rr > stop).flatten()
        n_going = int(going.sum())
        if n_going <= 0.75 * len(going):
            solved[live] = x
            if n_going == 0:
                break
            live = live[going]
            D, total, stop, x, r, d, along, rr = (t[going] for t in (D, total, stop, x, r, d, along, rr))
            space = space.rows(going)
        q = D * along
        q = torch.addcmul(q, D, q.sum(dim=1, keepdim=True) / total, value=-1)
        bend = space.square(d, along) + (q * along).sum(dim=1, keepdim=True)
        length = torch.where(bend > 0, rr / bend, 0)  # it is negative where rounding is all that is left
        x = torch.addcmul(x, d, length)
        r = torch.addcmul(r, space.pull_back(q).add_(d), length, value=-1)
        image = space.image(r)
        new = torch.where(bend > 0, space.square(r, image), 0)
        ratio = new / rr.clamp_min(_tiny(D))
        d, along, rr = torch.addcmul(r, d, ratio), torch.addcmul(image, along, ratio), new
    else:
        solved[live] = x
    return solved


def _line_search(problem: _Problem, ws: Tensor, ss: Tensor, f: Tensor, along: Tensor) -> Tensor:
    """Minimise the objective along each step, (fits, 1); on separable data the best length is often several times 1.

    `ws` and `ss` are the inner products of weights and step, and of the step with itself; `f` and `along` the images.

    The objective is convex along the step: Newton's method, kept within the bracket that the slopes seen so far give.
    """
    length = torch.ones_like(ws)
    low, high = torch.zeros_like(ws), torch.full_like(ws, torch.inf)
    for _ in range(12):
        p = torch.sigmoid(torch.addcmul(f, length, along))
        slope = (problem.cost * (p - problem.target) * along).sum(dim=1, keepdim=True) + ws + length * ss
        bend = (problem.cost * p * (1 - p) * along * along).sum(dim=1, keepdim=True) + ss
        low, high = torch.where(slope < 0, length, low), torch.where(slope > 0, length, high)
        proposed = length - slope / bend.clamp_min(_tiny(bend))
        inside = torch.minimum(torch.maximum(proposed, (length + low) / 2), 4 * length)
        inside = torch.where(inside >= high, (length + high) / 2, inside)
        moved = float(((inside - length).abs() / length).max())
        length = inside
        if moved < 0.03:
            break
    return length
