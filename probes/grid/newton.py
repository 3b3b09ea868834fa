"""Newton's method for many logistic fits at once; finished fits are removed, stalled ones are solved more exactly."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from probes.grid.conjugate_gradients import Inner, Space, conjugate_gradients, tiny
from probes.grid.design import Design, Problem

TINY = 1e-300
MAX_NEWTON = 100
MAX_START = 12
MAX_INTERCEPT = 50


def _shared_start(design: Design, problem: Problem, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the problem roughly, with the scales of all sets: coefficients (fits, n_samples), intercepts (fits, 1).

    A step then needs only products with the Gram matrix, in float32. The standard deviations of a fold differ from
    those of all sets by a few per cent, so the solution is close.
    """
    space, rough = Space(design, problem.inverse_scale, "gram"), problem.rounded()
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
        step = norm * conjugate_gradients(space, curvature, residual / norm, error.clamp(max=0.1))
        along = step @ gram
        shift = _mean(curvature, along)
        length = _line_search(rough, space.square(a, along), space.square(step, along), f + b, along - shift)
        a, f, b = a + length * step, f + length * along, b - length * shift
    return found_a.double(), found_b.double()


def _mean(weight: Tensor, values: Tensor) -> Tensor:
    """Return each row's weighted mean, (fits, 1)."""
    return (weight * values).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True).clamp_min(tiny(weight))


Solution = tuple[
    Float[Tensor, "fits features"], Float[Tensor, " fits"], Float[Tensor, " fits"], Integer[Tensor, " unfinished"]
]


def newton(design: Design, problem: Problem, tol: float, alone: bool) -> Solution:
    """Return weights, intercepts, error bounds and the indices of unfinished fits.

    Weights are for standardised features, intercepts for centred ones. Systems are solved in float64 only if `alone`.
    """
    fits = len(problem.cost)
    done = [problem.cost.new_zeros(size) for size in ((fits, design.X.shape[1]), (fits, 1), (fits, 1))]
    open_ = torch.arange(fits, device=problem.cost.device)
    w, b, a, f = torch.zeros_like(done[0]), torch.zeros_like(done[1]), None, torch.zeros_like(problem.cost)
    if design.gram is not None:
        a, b = _shared_start(design, problem, design.gram)
        w = (a @ design.X) * problem.inverse_scale  # holds as long as systems are solved in coefficients a
        f = (w * problem.inverse_scale) @ design.X.T
        better = _objective(problem, w, f, b) < _objective(problem, *map(torch.zeros_like, (w, f, b)))
        a, w, f, b = (torch.where(better, t, 0) for t in (a, w, f, b))  # the scales of sets may differ too much
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
            inner, a = ("rounded" if inner == "gram" else "exact"), None  # its approximation is too coarse
        if not keep.all():
            problem, last, error = problem.rows(keep), last[keep], error[keep]
            open_, w, b, f, gradient, curvature, residual, norm = (
                t[keep] for t in (open_, w, b, f, gradient, curvature, residual, norm)
            )
            a = None if a is None else a[keep]
        last = error
        forcing = error.clamp(max=0.1).clamp_min(tol / 2 / error).clamp(max=0.5)
        space = Space(design, problem.inverse_scale, inner)
        right = residual if a is None else -(a + gradient)
        solution = norm * conjugate_gradients(space, curvature, right / norm, forcing)
        solution = torch.where(solution.isfinite().all(dim=1, keepdim=True), solution, 0)
        step = solution if a is None else (solution @ design.X) * problem.inverse_scale
        along = (step * problem.inverse_scale) @ design.X.T
        shift = _mean(curvature, along)
        ws, ss = ((w * step).sum(dim=1, keepdim=True), (step * step).sum(dim=1, keepdim=True))
        length = _line_search(problem, ws, ss, f + b, along - shift)
        w, f, b = torch.addcmul(w, length, step), torch.addcmul(f, length, along), b - length * shift
        a = None if a is None else torch.addcmul(a, length, solution)
    return done[0], done[1].flatten(), done[2].flatten(), open_


def _objective(problem: Problem, w: Tensor, f: Tensor, b: Tensor) -> Tensor:
    f = f + b
    loss = torch.nn.functional.softplus(f) - problem.target * f
    return (problem.cost * loss).sum(dim=1, keepdim=True) + (w * w).sum(dim=1, keepdim=True) / 2


def _intercept(problem: Problem, f: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Optimise the intercepts at fixed weights; return them, the loss gradient by sample (sum 0) and the curvature."""
    for _ in range(MAX_INTERCEPT):
        p = torch.sigmoid(f + b)
        gradient = problem.cost * (p - problem.target)
        curvature = problem.cost * (p * (1 - p))
        move = gradient.sum(dim=1, keepdim=True) / curvature.sum(dim=1, keepdim=True).clamp_min(tiny(f))
        b = b - move.clamp(-1, 1)
        if float(move.abs().max()) < torch.finfo(f.dtype).eps ** 0.5:
            break
    return b, torch.addcmul(gradient, curvature, move, value=-1), curvature


def _line_search(problem: Problem, ws: Tensor, ss: Tensor, f: Tensor, along: Tensor) -> Tensor:
    """Return the step lengths, (fits, 1), that minimise the objective; on separable data they are often well above 1.

    `ws` and `ss` are the inner products of weights and step, and of the step with itself; `f` and `along` are the
    decision functions of both. The objective is convex along the step: Newton's method, bracketed by earlier slopes.
    """
    length = torch.ones_like(ws)
    low, high = torch.zeros_like(ws), torch.full_like(ws, torch.inf)
    for _ in range(12):
        p = torch.sigmoid(torch.addcmul(f, length, along))
        slope = (problem.cost * (p - problem.target) * along).sum(dim=1, keepdim=True) + ws + length * ss
        bend = (problem.cost * p * (1 - p) * along * along).sum(dim=1, keepdim=True) + ss
        low, high = torch.where(slope < 0, length, low), torch.where(slope > 0, length, high)
        proposed = length - slope / bend.clamp_min(tiny(bend))
        inside = torch.minimum(torch.maximum(proposed, (length + low) / 2), 4 * length)
        inside = torch.where(inside >= high, (length + high) / 2, inside)
        moved = float(((inside - length).abs() / length).max())
        length = inside
        if moved < 0.03:
            break
    return length
