"""Token-pooling probe: a linear value of every token of a prompt, pooled over the tokens to one score."""

from __future__ import annotations

from collections.abc import Sequence
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
RATE, HEADS, STEPS = 0.1, 4, 80  # Adam's rate times sqrt(d_model)


def fit_pooled_batch(
    X: Tokens,
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, " samples"],
    penalties: Sequence[float],
    pooling: Pooling,
    sample_weight: Float[np.ndarray, " samples"] | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Float[np.ndarray, "sets penalties samples"]]:
    """Fit a probe for every training set and penalty, by a fixed number of Adam's steps on all of them together.

    Minimises the weighted mean of log(1 + exp(-y f)) + penalty (|v|^2 + |q|^2), with tokens standardised on those of
    the training set. f is max_t v . z_t ("max"); sum_t a_t v . z_t with a = softmax(q . z) ("attention"); or
    sum_h max_t v_h . z_t ("multimax", Kramár et al. 2026, arXiv 2601.11516), plus a bias. Without `sample_weight` all
    samples weigh the same. Returns v (sets, penalties, heads, d_model), q (sets, penalties, d_model) and the bias
    (sets, penalties) for raw activations, and the scores of all samples, also outside the training sets. ValueError:
    a training set lacks a class, a sample a token, or a value is not finite.
    """
    if not all(len(one) and np.isfinite(one).all() for one in X):
        raise ValueError("every sample needs a token, and every value must be finite")
    if not ((train & y).any(axis=1) & (train & ~y).any(axis=1)).all():
        raise ValueError("a token-pooling probe needs two classes in every training set")
    flat, lengths = torch.from_numpy(np.concatenate(X).astype(np.float32)), torch.tensor([len(one) for one in X])
    flat -= (centre := flat.mean(dim=0))
    place = torch.arange(int(lengths.max()))
    absent = (place >= lengths[:, None])[:, :, None]
    index = ((lengths.cumsum(0) - lengths)[:, None] + place).clamp(max=len(flat) - 1)  # of each sample's tokens
    inside = torch.from_numpy(np.repeat(train, lengths.numpy(), axis=1)).float()
    inside /= inside.sum(dim=1, keepdim=True)
    mean = inside @ flat
    scale = (inside @ flat.square() - mean.square()).clamp(min=1e-12).sqrt()
    weight = torch.from_numpy(train * (np.ones(len(y)) if sample_weight is None else sample_weight)).float()
    weight /= weight.sum(dim=1, keepdim=True)
    shape, d, heads = (len(train), len(penalties)), flat.shape[1], HEADS if pooling == "multimax" else 1
    rate, rng = RATE / d**0.5, torch.Generator().manual_seed(seed)
    start = torch.randn(heads, d, generator=rng) * rate if heads > 1 else torch.zeros(1, d)  # equal heads stay equal
    value = start.repeat(*shape, 1, 1).requires_grad_()
    query, bias = torch.zeros(*shape, d, requires_grad=True), torch.zeros(shape, requires_grad=True)
    penalty, sign = torch.tensor(list(penalties)), torch.from_numpy(np.where(y, 1.0, -1.0)).float()[:, None, None]

    def raw() -> tuple[Tensor, Tensor, Tensor]:
        v = value / scale[:, None, None]
        return v, query / scale[:, None], bias - (v * mean[:, None, None]).sum(dim=(-2, -1))

    def scored(v: Tensor, q: Tensor, b: Tensor) -> Float[Tensor, "samples sets penalties"]:
        values = embedding(index, flat @ v.reshape(-1, d).T)
        if pooling == "attention":
            weights = embedding(index, flat @ q.reshape(-1, d).T).masked_fill(absent, -torch.inf).softmax(dim=1)
            return (weights * values).sum(dim=1).reshape(-1, *shape) + b
        return values.masked_fill(absent, -torch.inf).amax(dim=1).reshape(-1, *shape, heads).sum(dim=-1) + b

    optimizer = torch.optim.Adam([value, query, bias], lr=rate)
    for _ in range(STEPS):
        optimizer.zero_grad()
        size = value.square().sum(dim=(-2, -1)) + query.square().sum(dim=-1)
        (torch.einsum("nsp,sn->", softplus(-sign * scored(*raw())), weight) + (penalty * size).sum()).backward()
        optimizer.step()
    with torch.no_grad():
        v, q, b = raw()
        scores, b = scored(v, q, b).permute(1, 2, 0), b - (v * centre).sum(dim=(-2, -1))
    return v.numpy(), q.numpy(), b.numpy(), scores.numpy()


class TokenPoolingProbe(ClassifierMixin, BaseEstimator):
    """A probe whose score is a pool over a prompt's tokens; see `fit_pooled_batch` for the poolings and the loss."""

    def __init__(self, pooling: Pooling = "attention", penalty: float = 3e-3, seed: int = 0) -> None:
        self.pooling = pooling
        self.penalty = penalty
        self.seed = seed

    def fit(self, X: Tokens, y: Shaped[np.ndarray, " n"], sample_weight: np.ndarray | None = None) -> TokenPoolingProbe:
        """Fit on samples of shape (tokens, d_model), each with its number of tokens; the greater label is positive."""
        self.classes_: np.ndarray = np.unique(y)
        if len(self.classes_) != 2:
            raise ValueError(f"TokenPoolingProbe needs two classes, got {self.classes_.tolist()}")
        every, positive = np.ones((1, len(X)), dtype=bool), np.asarray(y) == self.classes_[1]
        fits = fit_pooled_batch(X, every, positive, [self.penalty], self.pooling, sample_weight, self.seed)
        self.value_, self.query_, self.intercept_, _ = (found[0, 0] for found in fits)
        self.n_features_in_ = self.value_.shape[1]
        return self

    def decision_function(self, X: Tokens) -> Float[np.ndarray, " samples"]:
        """Score samples of shape (tokens, d_model); positive for `classes_[1]`."""
        check_is_fitted(self)
        if self.pooling == "attention":
            pooled = [softmax(one @ self.query_) @ (one @ self.value_[0]) for one in X]
        else:
            pooled = [(one @ self.value_.T).max(axis=0).sum() for one in X]
        return np.array(pooled) + self.intercept_

    def predict(self, X: Tokens) -> Shaped[np.ndarray, " samples"]:
        """Return each sample's class."""
        return self.classes_[(self.decision_function(X) > 0).astype(int)]
