"""Token-pooling probe: a linear value of every token of a prompt, pooled over the tokens to one score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import embedding, softplus

Pooling = Literal["max", "attention", "multimax"]
Tokens = Sequence[Float[np.ndarray, "tokens d_model"]]
RATE = 0.1  # of Adam, times 1 / sqrt(d_model)


@dataclass(frozen=True)
class PooledFits:
    """Solutions of `fit_pooled_batch`, for raw activations; `query` is zero where tokens have no attention."""

    value: Float[np.ndarray, "sets penalties heads d_model"]
    query: Float[np.ndarray, "sets penalties d_model"]
    intercept: Float[np.ndarray, "sets penalties"]
    scores: Float[np.ndarray, "sets penalties samples"]  # of every sample, also outside the training set


def fit_pooled_batch(
    X: Tokens,
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, " samples"],
    penalties: Sequence[float],
    pooling: Pooling,
    *,
    sample_weight: Float[np.ndarray, " samples"] | None = None,
    n_heads: int = 4,
    steps: int = 80,
    seed: int = 0,
) -> PooledFits:
    """Fit a probe for every training set and penalty, by Adam on all of them together, for a fixed number of steps.

    Minimises the weighted mean of log(1 + exp(-y f)) + penalty (|v|^2 + |q|^2) with weights of tokens standardised on
    the tokens of the training set. f of tokens z is max_t v . z_t ("max"); sum_t a_t v . z_t with a = softmax(q . z)
    ("attention"); or sum_h max_t v_h . z_t over heads ("multimax", Kramár et al. 2026, arXiv 2601.11516); plus a bias.
    Without `sample_weight` both classes weigh the same. ValueError: a training set lacks a class, a sample a token, or
    a value is not finite.
    """
    if not all(len(one) and np.isfinite(one).all() for one in X):
        raise ValueError("every sample needs a token, and every value must be finite")
    if not ((train & y).any(axis=1) & (train & ~y).any(axis=1)).all():
        raise ValueError("a token-pooling probe needs two classes in every training set")
    flat = torch.from_numpy(np.concatenate(X).astype(np.float32))
    centre = flat.mean(dim=0)
    flat = flat - centre
    lengths = torch.tensor([len(one) for one in X])
    place = torch.arange(int(lengths.max()))
    there = (place < lengths[:, None])[:, :, None]
    index = ((lengths.cumsum(0) - lengths)[:, None] + place).clamp(max=len(flat) - 1)
    in_set = torch.from_numpy(np.repeat(train, lengths.numpy(), axis=1)).float()
    in_set /= in_set.sum(dim=1, keepdim=True)
    mean = in_set @ flat
    scale = (in_set @ flat.square() - mean.square()).clamp(min=1e-12).sqrt()
    weight = train * np.ones(len(y)) if sample_weight is None else train * sample_weight
    if sample_weight is None:
        weight = np.where(y, weight / (train & y).sum(1)[:, None], weight / (train & ~y).sum(1)[:, None])
    weight = torch.from_numpy(weight / weight.sum(axis=1, keepdims=True)).float()

    n_sets, n_penalties, d = len(train), len(penalties), flat.shape[1]
    heads, shape = n_heads if pooling == "multimax" else 1, (n_sets, n_penalties)
    start = torch.zeros(1, 1, heads, d)
    if heads > 1:  # else they stay the same
        start = torch.randn(start.shape, generator=torch.Generator().manual_seed(seed)) * RATE / d**0.5
    value = start.repeat(*shape, 1, 1).requires_grad_()
    query, bias = (torch.zeros(*shape, *size, requires_grad=True) for size in ((d,), ()))
    penalty, sign = torch.tensor(list(penalties)), torch.from_numpy(np.where(y, 1.0, -1.0)).float()

    def scored(v: Tensor, q: Tensor, b: Tensor) -> Tensor:
        """Return (samples, sets, penalties); weights are of tokens without the common centre."""
        values = embedding(index, flat @ v.reshape(-1, d).T)
        if pooling == "attention":
            attention = embedding(index, flat @ q.reshape(-1, d).T).masked_fill(~there, -torch.inf).softmax(dim=1)
            return (attention * values).sum(dim=1).reshape(-1, *shape) + b
        return values.masked_fill(~there, -torch.inf).amax(dim=1).reshape(-1, *shape, heads).sum(dim=-1) + b

    def raw() -> tuple[Tensor, Tensor, Tensor]:
        v, q = value / scale[:, None, None], query / scale[:, None]
        return v, q, bias - (v * mean[:, None, None]).sum(dim=(-2, -1))

    optimizer = torch.optim.Adam([value, query, bias], lr=RATE / d**0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = softplus(-sign[:, None, None] * scored(*raw()))
        size = value.square().sum(dim=(-2, -1)) + query.square().sum(dim=-1)
        (torch.einsum("nsp,sn->", losses, weight) + (penalty * size).sum()).backward()
        optimizer.step()
    with torch.no_grad():
        v, q, b = raw()
        scores = scored(v, q, b).permute(1, 2, 0)
        b = b - (v * centre).sum(dim=(-2, -1))
    return PooledFits(v.numpy(), q.numpy(), b.numpy(), scores.numpy())


class TokenPoolingProbe(ClassifierMixin, BaseEstimator):
    """A probe whose score is a pool over a prompt's tokens; see `fit_pooled_batch` for the poolings and the loss.

    Args:
        pooling: "max", "attention" or "multimax", which has `n_heads` heads.
        penalty: strength of the regularisation of standardised weights.
        steps: of Adam over all samples; seed: of the heads' first weights.
    """

    def __init__(
        self, pooling: Pooling = "attention", penalty: float = 3e-3, n_heads: int = 4, steps: int = 80, seed: int = 0
    ) -> None:
        self.pooling = pooling
        self.penalty = penalty
        self.n_heads = n_heads
        self.steps = steps
        self.seed = seed

    def fit(self, X: Tokens, y: Sequence[object], sample_weight: np.ndarray | None = None) -> TokenPoolingProbe:
        """Fit on samples of shape (tokens, d_model), each with its number of tokens, and y of two labels."""
        self.classes_ = np.unique(y)
        if len(self.classes_) != 2:
            raise ValueError(f"TokenPoolingProbe needs two classes, got {self.classes_.tolist()}")
        every, positive = np.ones((1, len(X)), dtype=bool), np.asarray(y) == self.classes_[1]
        more = {"n_heads": self.n_heads, "steps": self.steps, "seed": self.seed}
        fits = fit_pooled_batch(X, every, positive, [self.penalty], self.pooling, sample_weight=sample_weight, **more)
        self.value_, self.query_, self.intercept_ = fits.value[0, 0], fits.query[0, 0], float(fits.intercept[0, 0])
        self.n_features_in_ = self.value_.shape[1]
        return self

    def decision_function(self, X: Tokens) -> Float[np.ndarray, " samples"]:
        """Score samples of shape (tokens, d_model); positive for `classes_[1]`."""
        check_is_fitted(self)
        return np.array([self._pooled(np.asarray(one)) for one in X]) + self.intercept_

    def _pooled(self, tokens: Float[np.ndarray, "tokens d_model"]) -> float:
        values = tokens @ self.value_.T
        if self.pooling == "attention":
            return float(softmax(tokens @ self.query_) @ values[:, 0])
        return float(values.max(axis=0).sum())

    def predict(self, X: Tokens) -> Shaped[np.ndarray, " samples"]:
        """Return each sample's class."""
        return self.classes_[(self.decision_function(X) > 0).astype(int)]
