"""Conjugate gradients for the Newton systems of many logistic fits at once."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from probes.grid.design import Design

Inner = Literal["gram", "rounded", "exact"]  # how Newton systems are solved, from fast to exact
MAX_STEPS = 1000


class Space:
    """The unknowns of a Newton system: weights (exact), or coefficients of samples through their Gram matrix.

    For weights v the matrix is I + S X' D X S with the fit's own scales S. For coefficients a, with v = S X' a, it is
    I + D K with K = X S S X', self-adjoint in the inner product a' K a (Chapelle 2007, Training a support vector
    machine in the primal). K uses the scales of all sets, so that one matrix serves every fit of the locus; it is off
    by a few per cent, as the standard deviations of folds differ, which costs one or two Newton steps.
    """

    def __init__(self, design: Design, inverse_scale: Float[Tensor, "fits features"], kind: Inner) -> None:
        self._design, self.kind = design, kind
        self.dtype = torch.float64 if kind == "exact" else torch.float32
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

    def square(
        self, v: Float[Tensor, "fits unknowns"], image: Float[Tensor, "fits samples"]
    ) -> Float[Tensor, "fits 1"]:
        """Return the squared norm of the weights of v."""
        return (v * (image if self.kind == "gram" else v)).sum(dim=1, keepdim=True)

    def inner(
        self, u: Float[Tensor, "fits unknowns"], v: Float[Tensor, "fits unknowns"], image: Float[Tensor, "fits samples"]
    ) -> Float[Tensor, "fits 1"]:
        """Return the inner product of the weights of u and v, given the image of v."""
        return (u * (image if self.kind == "gram" else v)).sum(dim=1, keepdim=True)

    def precondition(
        self, r: Float[Tensor, "fits unknowns"], total: Float[Tensor, "fits 1"]
    ) -> Float[Tensor, "fits unknowns"]:
        """Return an approximate solution for r, given each fit's total curvature; r itself for coefficients."""
        if self.kind == "gram":
            return r
        curvature = total / self._design.share.sum()
        return self._design.preconditioner(self.dtype).solve(r, curvature).mul_(self._varies)

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
    d, along, rr, rz = z, image, space.square(r, image), space.inner(r, z, image)
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
        rr, new = (torch.where(bend > 0, t, 0) for t in (space.square(r, image), space.inner(r, z, image)))
        ratio = new / rz.clamp_min(tiny(D))
        d, along, rz = torch.addcmul(z, d, ratio), torch.addcmul(image, along, ratio), new
    else:
        solved[live] = x
    return solved


def tiny(like: Tensor) -> float:
    """Return the smallest normal number of a tensor's dtype."""
    return torch.finfo(like.dtype).tiny
