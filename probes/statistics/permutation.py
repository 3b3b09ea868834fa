"""A permutation test of clustered outcomes, yes or no or measured: does having something go with the outcome?

Exact whatever the rates, at 0 and 1 too, and whatever the correlation within groups: what all prompts of a group share
is moved between groups as a whole, and what differs within a group is moved inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK = 250  # permutations at a time


@dataclass(frozen=True)
class Units:
    """What is permuted as one: the prompts of one group and category that have it, or do not; (n_units,) each."""

    has: np.ndarray  # bool
    hits: np.ndarray
    n: np.ndarray
    category: np.ndarray  # int; differences are taken within categories
    block: np.ndarray  # int; only units of one block change places

    @staticmethod
    def of(groups: np.ndarray, category: np.ndarray, has: np.ndarray, outcome: np.ndarray) -> Units:
        """Gather prompts into units; (n_prompts,) each."""
        described = np.stack([groups, np.unique(category, return_inverse=True)[1], has])
        (_, of, had), unit = np.unique(described, axis=1, return_inverse=True)
        unit, group = unit.reshape(-1), np.unique(described[:2], axis=1, return_inverse=True)[1].reshape(-1)
        cluster = np.zeros(len(of), dtype=int)
        cluster[unit] = group
        mixed = np.bincount(cluster)[cluster] == 2  # the group has prompts of this category with it and without it
        block = np.where(mixed, of.max() + 1 + cluster, of)
        return Units(had.astype(bool), np.bincount(unit, outcome), np.bincount(unit).astype(float), of, block)


def permuted_p(units: Units, times: int, rng: np.random.Generator) -> float:
    """Return the two-sided p-value of the difference of rates, weighted by the categories of those that have it."""
    observed = abs(_difference(units, units.has[None])[0]) - 1e-9
    beyond, order = 1, np.argsort(units.block, kind="stable")
    for start in range(0, times, CHUNK):
        keys = units.block + rng.random((min(CHUNK, times - start), len(units.has)))
        has = np.empty(keys.shape, dtype=bool)
        has[:, order] = units.has[np.argsort(keys, axis=1)]
        beyond += int((abs(_difference(units, has)) >= observed).sum())
    return beyond / (times + 1)


def _difference(units: Units, has: np.ndarray) -> np.ndarray:
    """Return the difference of rates under each labelling; has is (n_labellings, n_units)."""
    to_category = np.eye(units.category.max() + 1)[units.category]  # (n_units, n_categories)
    hits, n = ((has * of) @ to_category for of in (units.hits, units.n))
    hits_without, n_without = units.hits @ to_category - hits, units.n @ to_category - n
    return np.asarray((hits - n * hits_without / n_without).sum(1) / n.sum(1))


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm 1979)."""
    order = np.argsort(ps, kind="stable")
    stepped = np.array([ps[i] * (len(ps) - rank) for rank, i in enumerate(order)])
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(p) for p in adjusted]
