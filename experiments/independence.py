"""Representational independence of two directions under ablation (Wollschläger et al., arXiv 2502.17420).

Directions λ and μ are representationally independent if ablating μ leaves cos(x_l, λ) as it was at every layer l, and
the reverse. Orthogonal directions need not be: later layers may compute the one from the other. Ablation is the one of
`writing` (affine, at one layer, from the last prompt token on), so layers before it cannot change and are left out; x_l
is the stream of the last prompt token.

No change is exactly zero in a real model, and a cosine changes with the stream's norm even where the coordinate itself
stays. So the change of the projection λ·x_l stands beside that of the cosine, and each beside two others: what ablating
the watched direction *itself* does (a share of 1: the two are one), and what ablating directions does that are fitted
on permuted labels at the same locus (no more than that is what any ablation does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import t as student
from torch import Tensor

from experiments.blocks import Repeated, Trial
from experiments.writing import ablation, write_site
from extract.continuation import last_streams
from extract.model import ChatModel
from probes.direction import Direction
from probes.intervals import Interval, effective_groups

N_NULL = 99  # permuted-label directions an ablated one is compared with
N_A_LABEL = 32  # held-out prompts of each label


def independence(
    model: ChatModel,
    prompts: Repeated,
    groups: np.ndarray,
    ablated: Direction,
    watched: Direction,
    null: Sequence[Direction],
    alpha: float = 0.05,
) -> dict[str, Any]:
    """Say what ablating one direction does to the stream along another.

    Args:
        groups: (n_prompts,) what belongs together; intervals are over these.
        null: directions fitted at the ablated one's locus on permuted labels.

    Returns:
        For `cosine` and for `projection` (in gaps between the watched direction's class means): the mean absolute
        `change` with its interval, averaged over the layers from the ablated one on; `share_of_own`, relative to
        ablating the watched direction itself, over the layers that both can change; the 95th percentile and p of the
        null; and all but the share by layer.
    """
    start = min(ablated.locus.layer, watched.locus.layer)
    trials = [[ablation(direction)] for direction in (ablated, watched, *null)]
    changes = watch(model, prompts, trials, watched, start)
    layers = range(ablated.locus.layer, model.n_layers)
    both = range(max(ablated.locus.layer, watched.locus.layer), model.n_layers)
    return {
        "ablated": vars(ablated.locus),
        "watched": vars(watched.locus),
        "n": prompts.n_rows,
        "n_null": len(null),
        **{
            measure: {
                **_against_null(change[:, layers.start - start :].mean(axis=1), groups, alpha),
                "share_of_own": _share(change[:2, both.start - start :].mean(axis=(1, 2))),
                "by_layer": [
                    {"layer": layer, **_against_null(change[:, layer - start], groups, alpha)} for layer in layers
                ],
            }
            for measure, change in changes.items()
        },
    }


def watch(
    model: ChatModel, prompts: Repeated, trials: Sequence[Trial], watched: Direction, since: int
) -> dict[str, np.ndarray]:
    """Measure how far each trial's edits move the stream along a watched direction, at every layer from one on.

    Returns:
        Absolute changes of `cosine` and `projection`, each (n_trials, n_layers, n_prompts).
    """
    layers, site = range(since, model.n_layers), write_site(watched)
    r = torch.tensor(watched.vector, device=model.device)
    found, before = [], None
    for blocks in prompts.passes(trials, 0):
        if before is None:
            before = _along(last_streams(model, blocks.remembered, site, layers), r)
        after = _along(last_streams(model, blocks.remembered, site, layers, blocks.edits), r)
        found.append(blocks.split((after - before).abs().movedim(-1, 0)))  # (trials, prompts, 2, layers)
    cosine, projection = torch.cat(found).cpu().double().numpy().transpose(2, 0, 3, 1)
    return {"cosine": cosine, "projection": projection / abs(watched.mean_positive - watched.mean_negative)}


def _along(
    streams: Float[Tensor, "layers rows d_model"], r: Float[Tensor, " d_model"]
) -> Float[Tensor, "2 layers rows"]:
    """Return cosines and projections."""
    projection = streams @ r
    return torch.stack([projection / streams.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny), projection])


def _share(change: np.ndarray) -> float | None:
    return float(change[0] / change[1]) if change[1] > 0 else None


def _against_null(change: np.ndarray, groups: np.ndarray, alpha: float) -> dict[str, float | None]:
    """Sum up (n_trials, n_prompts) changes: the first trial is the ablation, all from the third on are the null."""
    interval = mean_over_groups(change[0], groups, alpha)
    null = change[2:].mean(axis=1)
    return {
        "change": interval.estimate,
        "low": interval.low,
        "high": interval.high if np.isfinite(interval.high) else None,
        "null_95th_percentile": float(np.quantile(null, 0.95)) if len(null) else None,
        "p_null": float((1 + (null >= interval.estimate).sum()) / (1 + len(null))) if len(null) else None,
    }


def mean_over_groups(values: np.ndarray, groups: np.ndarray, alpha: float = 0.05) -> Interval:
    """Return the mean of non-negative values with a t interval whose standard error is over groups (cluster-robust).

    A single group has no spread to judge by: its interval has no upper end.
    """
    mean = float(values.mean())
    _, code = np.unique(groups, return_inverse=True)
    n_groups = int(code.max()) + 1
    if n_groups < 2:
        return Interval(mean, 0.0, float("inf"))
    off = np.bincount(code, weights=values - mean)
    error = float(np.sqrt((off**2).sum() * n_groups / (n_groups - 1))) / len(values)
    half = error * float(student.ppf(1 - alpha / 2, max(1.0, effective_groups(groups) - 1)))
    return Interval(mean, max(0.0, mean - half), mean + half)
