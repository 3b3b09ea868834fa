"""Clustered data without a model: labels with a given intra-class correlation, independent of a stream with groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

ICCS = (0.0, 0.3, 1.0)  # intra-class correlation of the labels
SIZES = (1, 2, 4, 8)  # prompts a group
N_GROUPS = {1: 64, 2: 48, 4: 32, 8: 24}


@dataclass(frozen=True)
class Setting:
    """Prompts a group, and the intra-class correlation of their labels."""

    size: int
    icc: float


SETTINGS = tuple(Setting(size, icc) for size in SIZES for icc in ICCS if size > 1 or icc == 0)


def rates(icc: float, mean: float, n_groups: int, rng: np.random.Generator) -> Float[np.ndarray, " groups"]:
    """Draw each group's probability of a label: constant, beta-distributed, or 0 and 1."""
    if icc == 0 or mean in (0.0, 1.0):
        return np.full(n_groups, mean)
    if icc == 1:
        return (rng.random(n_groups) < mean).astype(float)
    return rng.beta(mean * (1 - icc) / icc, (1 - mean) * (1 - icc) / icc, n_groups)


def clustered_labels(setting: Setting, rng: np.random.Generator) -> Bool[np.ndarray, " samples"]:
    """Draw labels of groups of equal size, both kinds present."""
    n = N_GROUPS[setting.size]
    while True:
        labels = rng.random((n, setting.size)) < rates(setting.icc, 0.5, n, rng)[:, None]
        if labels.any(axis=1).sum() >= 4 and (~labels).any(axis=1).sum() >= 4:
            return labels.ravel()


def groups_of(setting: Setting) -> Int[np.ndarray, " samples"]:
    """Return the group of each sample."""
    return np.repeat(np.arange(N_GROUPS[setting.size]), setting.size)


def clustered_stream(setting: Setting, d: int, rng: np.random.Generator) -> Float[np.ndarray, "samples d"]:
    """Draw a stream of unit variance, half of which groups share."""
    groups = groups_of(setting)
    shared = rng.standard_normal((N_GROUPS[setting.size], d))[groups]
    return np.sqrt(0.5) * shared + np.sqrt(0.5) * rng.standard_normal((len(groups), d))
