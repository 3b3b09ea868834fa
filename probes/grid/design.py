"""The activations shared by all logistic fits of one locus, and the objective of each fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

RANK = 256  # vectors; twice as many change the number of steps by a few per cent


@dataclass(frozen=True)
class Preconditioner:
    """A rank-k approximation of X'X and the mean of its other eigenvalues (Nyström).

    The matrix of a fit is I + S X' D X S; with the mean of its curvature D for every sample, and the scales S of all
    sets, it is near I + m X'X, whose inverse costs two thin products. (Frangella, Tropp & Udell 2023, Randomized
    Nyström preconditioning, arXiv 2110.02820; there the rest has the smallest of the k eigenvalues.)
    """

    vectors: Float[Tensor, "rank features"]  # orthonormal
    values: Float[Tensor, " rank"]
    rest: float

    @classmethod
    def of(cls, X: Float[Tensor, "samples features"], share: Float[Tensor, " samples"]) -> Preconditioner:
        """Approximate X' W X by its product with RANK random directions, always the same.

        W is the share of the training sets that a sample is in: one in none that lies far away must not count.
        """
        d = X.shape[1]
        rank = min(RANK, *X.shape)
        drawn = torch.randn(d, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        test = torch.linalg.qr(drawn).Q
        sketch = (((test.to(X).T @ X.T) * share) @ X).T.to("cpu", torch.float64)
        core = test.T @ sketch
        values, vectors = torch.linalg.eigh((core + core.T) / 2)
        keep = values > 1e-6 * values[-1]  # below are rounding errors of float32 products
        factor = sketch @ (vectors[:, keep] / values[keep].sqrt())
        inner, rotation = torch.linalg.eigh(factor.T @ factor)
        inner = inner.clamp_min(1e-300)
        vectors = (factor @ (rotation / inner.sqrt())).T.contiguous()
        total = float(share @ torch.linalg.vector_norm(X, dim=1).square())
        rest = max(total - float(inner.sum()), 0.0) / max(d - len(inner), 1)
        return cls(vectors.to(X), inner.to(X), rest)

    def to(self, dtype: torch.dtype) -> Preconditioner:
        return Preconditioner(self.vectors.to(dtype), self.values.to(dtype), self.rest)

    def solve(
        self, r: Float[Tensor, "fits features"], curvature: Float[Tensor, "fits 1"]
    ) -> Float[Tensor, "fits features"]:
        """Return (I + curvature X'X)^-1 r by the approximation, times a positive number for each fit."""
        shrink = 1 - (1 + curvature * self.rest) / (1 + curvature * self.values)
        return r - ((r @ self.vectors.T) * shrink) @ self.vectors


@dataclass(frozen=True)
class Design:
    """The activations, centred and scaled over all training sets: in float64, and in float32 for the inner products.

    A sample counts once for each training set it is in. So an outlier in no training set costs no accuracy, and a
    single training set is scaled by its own standard deviations.
    """

    X: Float[Tensor, "samples features"]  # float64
    rounded: Float[Tensor, "samples features"]  # the same, float32
    gram: Float[Tensor, "samples samples"] | None
    mean: Float[Tensor, " features"]
    scale: Float[Tensor, " features"]
    share: Float[Tensor, " samples"]  # of the training sets that a sample is in, float32
    inverse_scale: Float[Tensor, "sets features"]  # 1 / standard deviation over each training set; 0 where constant

    @classmethod
    def of(cls, X: np.ndarray, train: np.ndarray) -> Design:
        """Centre and scale activations, (samples, features), of all training sets, (sets, samples) bool."""
        wide = torch.as_tensor(np.require(X, requirements=("C", "W"))).to(torch.float64, copy=True)
        inside = _double(train)
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
        inverse_scale = _inverse_scales(wide, inside, square, mean / scale)
        return cls(wide, rounded, gram, mean, scale, inside.mean(dim=0).float(), inverse_scale)

    @cached_property
    def preconditioner(self) -> Preconditioner:
        """The preconditioner shared by all fits, in float32."""
        return Preconditioner.of(self.rounded, self.share)

    @cached_property
    def transposed(self) -> Float[Tensor, "features samples"]:
        """The contiguous transpose, with which products of few rows are several times faster."""
        return self.rounded.T.contiguous()


def _gram(X: Tensor, blocks: int = 4) -> Tensor:
    """Return X X', by block rows up to the diagonal, because torch has no symmetric product."""
    gram = X.new_empty(len(X), len(X))
    edges = [len(X) * i // blocks for i in range(blocks + 1)]
    for start, stop in itertools.pairwise(edges):
        gram[start:stop, :stop] = X[start:stop] @ X[:stop].T
        gram[:start, start:stop] = gram[start:stop, :start].T
    return gram


def _constant(variance: Tensor, mean: Tensor, n: Tensor | int) -> Tensor:
    """Return which variances are rounding errors of a constant (the bound of scikit-learn's StandardScaler)."""
    eps = torch.finfo(torch.float64).eps
    return variance <= n * eps * variance + (n * mean * eps) ** 2


@dataclass
class Problem:
    """The objective of each fit, one row per (set, C) pair, with C varying fastest."""

    inverse_scale: Float[Tensor, "fits features"]  # 1 / standard deviation of the training samples; 0 where constant
    cost: Float[Tensor, "fits samples"]  # C times the sample's weight; 0 outside the training set
    target: Float[Tensor, "fits samples"]  # 1 for positive samples
    following: Integer[Tensor, " fits"]  # the fit of the same set with the next larger C, -1 for the largest

    def rows(self, keep: Bool[Tensor, " fits"] | Integer[Tensor, " kept"]) -> Problem:
        """Return the problem of some of the fits."""
        return Problem(*(t[keep] for t in vars(self).values()))

    def rounded(self) -> Problem:
        return Problem(self.inverse_scale.float(), self.cost.float(), self.target.float(), self.following)


def make_problem(
    design: Design,
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, "sets samples"],
    Cs: Sequence[float],
    sample_weight: Float[np.ndarray, " samples"] | None,
) -> Problem:
    """Make the problem of every training set and C; without sample weights both classes count equally."""
    inside, target = _double(train), _double(train & y)
    if sample_weight is None:
        n, positive = (side.sum(dim=1, keepdim=True) for side in (inside, target))
        weight = torch.where(target > 0, n / (2 * positive), n / (2 * (n - positive)))
    else:
        weight = _double(sample_weight)
    penalty = torch.tensor(list(Cs), dtype=torch.float64).repeat(len(train))[:, None]
    return Problem(
        inverse_scale=design.inverse_scale.repeat_interleave(len(Cs), dim=0),
        cost=(inside * weight).repeat_interleave(len(Cs), dim=0) * penalty,
        target=target.repeat_interleave(len(Cs), dim=0),
        following=_following(len(train), Cs),
    )


def _following(n_sets: int, Cs: Sequence[float]) -> Integer[Tensor, " fits"]:
    order = np.argsort(Cs, kind="stable")
    after = np.full(len(Cs), -1)
    after[order[:-1]] = order[1:]
    starts = np.arange(n_sets)[:, None] * len(Cs)
    return torch.as_tensor(np.where(after < 0, -1, starts + after).ravel())


def _double(values: np.ndarray) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _inverse_scales(X: Tensor, inside: Tensor, square: Tensor, offset: Tensor) -> Tensor:
    """Return 1 / standard deviation of each feature over each training set; `offset` is the mean removed from X."""
    n = inside.sum(dim=1, keepdim=True)
    mean = inside @ X / n
    variance = square / n - mean**2
    for i, j in enumerate(variance < 1e-6):  # far below the overall variance: cancellation, so repeat in two passes
        if j.any():
            some = X[inside[i] > 0][:, j]
            variance[i, j] = (some - some.mean(dim=0)).square().mean(dim=0)
    return torch.where(_constant(variance, mean.abs() + offset.abs(), n), torch.zeros_like(variance), variance.rsqrt())
