"""Newton's method for many logistic fits at once, with its systems solved by conjugate gradients.

Finished fits are removed; stalled ones are solved more exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from probes.grid.design import Design, Problem

Inner = Literal["gram", "rounded", "exact"]  # how Newton systems are solved, from fast to exact
MAX_STEPS = 1000  # of conjugate gradients
TINY = 1e-300
MAX_NEWTON = 100
NEAR = 0.3  # error at which a fit's solution starts that of the next C
MAX_START = 12
MAX_INTERCEPT = 50


class Space:
    """The unknowns of a Newton system: weights (exact), or coefficients of samples through their Gram matrix.

    For weights v the matrix is I + S X' D X S with the fit's own scales S. For coefficients a, with v = S X' a, it is
    I + D K with K = X S S X', self-adjoint in the inner product a' K a (Chapelle 2007, Training a support vector
    machine in the primal). K uses the scales of all sets, which differ by a few per cent, so that one matrix serves
    every fit of the locus; that costs one or two Newton steps.
    """

    def __init__(self, design: Design, inverse_scale: Float[Tensor, "fits features"], kind: Inner) -> None:
        self._design, self.kind = design, kind
        self.dtype: torch.dtype = torch.float64 if kind == "exact" else torch.float32
        self._scale = inverse_scale.to(self.dtype)
        self._varies = (inverse_scale > 0).to(self.dtype)

    def image(self, v: Float[Tensor, "fits unknowns"]) -> Float[Tensor, "fits samples"]:
        """Return the decision function f of every sample, without the intercept."""
        if self.kind == "gram":
            return v @ self._design.gram
        return (v * self._scale) @ (self._design.X.T if self.kind == "exact" else self._design.transposed)

    def pull_back(self, u: Float[Tensor, "fits samples"]) -> Float[Tensor, "fits unknowns"]:
        """Return the adjoint of `image`."""
        if self.kind == "gram":
            return u
        return (u @ (self._design.X if self.kind == "exact" else self._design.rounded)).mul_(self._scale)

    def inner(
        self, u: Float[Tensor, "fits unknowns"], v: Float[Tensor, "fits unknowns"], image: Float[Tensor, "fits samples"]
    ) -> Float[Tensor, "fits 1"]:
        """Return the inner product of the weights of u and v, from the image of v."""
        return (u * (image if self.kind == "gram" else v)).sum(dim=1, keepdim=True)

    def precondition(
        self, r: Float[Tensor, "fits unknowns"], total: Float[Tensor, "fits 1"]
    ) -> Float[Tensor, "fits unknowns"]:
        """Return an approximate solution for r, given each fit's total curvature; r itself for coefficients."""
        if self.kind == "gram":
            return r
        curvature = total / self._design.share.sum()
        return self._design.preconditioner.to(self.dtype).solve(r, curvature).mul_(self._varies)

    def rows(self, keep: Bool[Tensor, " fits"]) -> Space:
        """Return the space of a subset of the fits."""
        return Space(self._design, self._scale if self.kind == "gram" else self._scale[keep], self.kind)


def conjugate_gradients(
    space: Space,
    curvature: Float[Tensor, "fits samples"],
    residual: Float[Tensor, "fits unknowns"],
    forcing: Float[Tensor, "fits 1"],
) -> Float[Tensor, "fits unknowns"]:
    """Solve (I + D) x = residual in a space, with D the centred curvature, until the norm is below `forcing`."""
    D, r, stop = curvature.to(space.dtype), residual.to(space.dtype), forcing.to(space.dtype) ** 2
    total = D.sum(dim=1, keepdim=True).clamp_min(tiny(D))
    solved, live = torch.zeros_like(r), torch.arange(len(r), device=r.device)
    x, z = torch.zeros_like(r), space.precondition(r, total)
    image = space.image(z)
    d, along, rr, rz = z, image, space.inner(r, r, image), space.inner(r, z, image)
    for _ in range(MAX_STEPS):
        going = (rr > stop).flatten()
        n_going = int(going.sum())
        if n_going <= 0.75 * len(going):
            solved[live] = x
            if n_going == 0:
                break
            live = live[going]
            D, total, stop, x, r, d, along, rr, rz = (t[going] for t in (D, total, stop, x, r, d, along, rr, rz))
            space = space.rows(going)
        q = D * along
        q = torch.addcmul(q, D, q.sum(dim=1, keepdim=True) / total, value=-1)
        bend = space.inner(d, d, along) + (q * along).sum(dim=1, keepdim=True)
        length = torch.where(bend > 0, rz / bend, 0)  # negative if only rounding is left
        x = torch.addcmul(x, d, length)
        r = torch.addcmul(r, space.pull_back(q).add_(d), length, value=-1)
        z = space.precondition(r, total)
        image = space.image(z)
        rr, new = (torch.where(bend > 0, t, 0) for t in (space.inner(r, r, image), space.inner(r, z, image)))
        ratio = new / rz.clamp_min(tiny(D))
        d, along, rz = torch.addcmul(z, d, ratio), torch.addcmul(image, along, ratio), new
    else:
        solved[live] = x
    return solved


def tiny(like: Tensor) -> float:
    """Return the smallest normal number of a tensor's dtype."""
    return torch.finfo(like.dtype).tiny


def _shared_start(design: Design, problem: Problem, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Solve roughly by products with the Gram matrix: coefficients (fits, n_samples) and intercepts (fits, 1)."""
    space, rough = Space(design, problem.inverse_scale, "gram"), problem.rounded()
    a = torch.zeros_like(rough.cost)
    f, b, open_ = torch.zeros_like(a), a.new_zeros(len(a), 1), torch.arange(len(a), device=a.device)
    kept_a, kept_b = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(MAX_START):
        b, gradient, curvature = _intercept(rough, f, b)
        residual = -(a + gradient)
        norm = space.inner(residual, residual, residual @ gram).sqrt()
        error = norm / space.inner(a, a, f).sqrt().clamp_min(1e-30)
        kept_a[open_], kept_b[open_] = a, b
        keep = (error > 0.03).flatten()
        if not keep.any():
            break
        rough, (open_, a, b, f, residual, norm, error, curvature) = (
            rough.rows(keep),
            (t[keep] for t in (open_, a, b, f, residual, norm, error, curvature)),
        )
        step = norm * conjugate_gradients(space, curvature, residual / norm, error.clamp(max=0.1))
        along = step @ gram
        shift = _mean(curvature, along)
        length = _line_search(rough, space.inner(a, a, along), space.inner(step, step, along), f + b, along - shift)
        a, f, b = a + length * step, f + length * along, b - length * shift
    return kept_a.double(), kept_b.double()


def _mean(weight: Tensor, values: Tensor) -> Tensor:
    return (weight * values).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True).clamp_min(tiny(weight))


@dataclass
class _Open:
    """The fits in progress, one row each."""

    index: Integer[Tensor, " fits"]
    w: Float[Tensor, "fits features"]
    f: Float[Tensor, "fits samples"]  # decision functions without the intercepts
    b: Float[Tensor, "fits 1"]
    error: Float[Tensor, "fits 1"]  # at the last step; infinite before the first
    value: Float[Tensor, "fits 1"]  # objective at the last step
    a: Float[Tensor, "fits samples"] | None = None  # w = X' a with scales, as long as systems are solved in a

    def rows(self, keep: Tensor) -> _Open:
        return _Open(*(None if t is None else t[keep] for t in vars(self).values()))

    def joined(self, other: _Open) -> _Open:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Open(*(None if t is None else torch.cat((t, u)) for t, u in pairs))

    def begun(self, index: Tensor) -> _Open:
        """Return fits that start where these are."""
        fresh = torch.full_like(self.b, torch.inf)
        return _Open(index, self.w, self.f, self.b, fresh, fresh, self.a)


def newton(design: Design, problem: Problem, tol: float, alone: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights for standardised features, intercepts for centred ones, error bounds, and unfinished fits.

    Fits that systems in float32 do not bring to `tol` are left unfinished, or with `alone` solved in float64. Without a
    Gram matrix the fits of a set begin one after another, from the smallest C to the largest, each at the rough
    solution of the one before, or where that one ended: from zero, a large C takes many steps.
    """
    whole, fits = problem, len(problem.cost)
    w, b = (problem.cost.new_zeros(size) for size in ((fits, design.X.shape[1]), (fits, 1)))
    done = w, b, torch.full_like(b, torch.inf), torch.ones(fits, dtype=torch.bool, device=b.device)
    now, following = _begin(design, problem)
    inner: Inner = "rounded" if now.a is None else "gram"
    for _ in range(MAX_NEWTON):
        problem = whole.rows(now.index)
        now.b, gradient, curvature = _intercept(problem, now.f, now.b)
        residual = -torch.addcmul(now.w, gradient @ design.X, problem.inverse_scale)
        norm = residual.norm(dim=1, keepdim=True)
        error = norm / now.w.norm(dim=1, keepdim=True).clamp_min(TINY)
        value = _objective(problem, now.w, now.f, now.b)
        rounding = torch.finfo(value.dtype).eps * design.X.numel() ** 0.5 * gradient.norm(dim=1, keepdim=True)
        open_ = ~((error <= tol) | (norm <= rounding)).flatten()  # NaN is open
        for final, current in zip(done, (now.w, now.b, error, open_), strict=True):
            final[now.index] = current
        slow = (error > 0.99 * now.error) & ~(value < 0.999 * now.value) | (now.error < 0.1) & (error > 0.5 * now.error)
        stuck = open_ & slow.flatten() & (inner != "exact")
        if stuck.any() and (inner == "gram" or alone):  # its approximation is too coarse
            inner, now.a = ("rounded" if inner == "gram" else "exact"), None
        else:
            open_ &= ~stuck
        start = (~open_ | ~(error > NEAR).flatten()) & (following[now.index] >= 0)
        begun = now.rows(start).begun(following[now.index[start]])
        following[now.index[start]] = -1
        now.error, now.value = error, value
        if open_.any():
            now, problem = now.rows(open_), problem.rows(open_)
            gradient, curvature, residual, norm = (t[open_] for t in (gradient, curvature, residual, norm))
            _step(design, problem, now, gradient, curvature, residual, norm, inner, tol)
            now = now.joined(begun)
        else:
            now = begun
        if not len(now.index):
            break
    return done


def _begin(design: Design, problem: Problem) -> tuple[_Open, Integer[Tensor, " fits"]]:
    """Return the fits to begin with, and for each fit the one that it starts, or -1."""
    every = torch.arange(len(problem.cost), device=problem.cost.device)
    w, b = problem.cost.new_zeros(len(every), design.X.shape[1]), problem.cost.new_zeros(len(every), 1)
    f = torch.zeros_like(problem.cost)
    if design.gram is None:
        first = torch.ones_like(every, dtype=torch.bool)
        first[problem.following[problem.following >= 0]] = False
        return _Open(every, w, f, b, b, b).rows(first).begun(every[first]), problem.following.clone()
    a, b = _shared_start(design, problem, design.gram)
    w = (a @ design.X) * problem.inverse_scale
    f = (w * problem.inverse_scale) @ design.X.T
    better = _objective(problem, w, f, b) < _objective(problem, *map(torch.zeros_like, (w, f, b)))
    a, w, f, b = (torch.where(better, t, 0) for t in (a, w, f, b))  # the scales of sets may differ too much
    return _Open(every, w, f, b, b, b, a).begun(every), torch.full_like(every, -1)


def _step(
    design: Design,
    problem: Problem,
    now: _Open,
    gradient: Tensor,
    curvature: Tensor,
    residual: Tensor,
    norm: Tensor,
    inner: Inner,
    tol: float,
) -> None:
    """Move the open fits by one Newton step, in place."""
    forcing = now.error.clamp(max=0.1).clamp_min(tol / 2 / now.error).clamp(max=0.5)
    space = Space(design, problem.inverse_scale, inner)
    right = residual if now.a is None else -(now.a + gradient)
    solution = norm * conjugate_gradients(space, curvature, right / norm, forcing)
    solution = torch.where(solution.isfinite().all(dim=1, keepdim=True), solution, 0)
    step = solution if now.a is None else (solution @ design.X) * problem.inverse_scale
    along = (step * problem.inverse_scale) @ design.X.T
    shift = _mean(curvature, along)
    ws, ss = ((now.w * step).sum(dim=1, keepdim=True), (step * step).sum(dim=1, keepdim=True))
    length = _line_search(problem, ws, ss, now.f + now.b, along - shift)
    now.w, now.f = torch.addcmul(now.w, length, step), torch.addcmul(now.f, length, along)
    now.b = now.b - length * shift
    now.a = None if now.a is None else torch.addcmul(now.a, length, solution)


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
    """Return the step lengths, (fits, 1), that minimise the objective, by Newton's method bracketed by earlier slopes.

    `ws` and `ss` are the inner products of weights and step, and of the step with itself; `f` and `along` are the
    decision functions of both.
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
