"""Permutation tests: label permutation that respects groups, p-values, and Holm's correction.

The tests are exact for all rates, also 0 and 1, and for any correlation within groups: a label shared by all samples of
a group moves between groups as a whole, and labels that differ within a group move inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped

from probes.statistics.metrics import auroc, aurocs_of_labels
from probes.statistics.seeds import named_rng

CHUNK = 250  # permutations at a time
ROUNDING = 1e-9  # statistics that differ by less count as equal


def permuted_labels(
    labels: Shaped[np.ndarray, " samples"],
    n: int,
    rng: np.random.Generator,
    *,
    groups: Shaped[np.ndarray, " samples"] | None = None,
    strata: Shaped[np.ndarray, " samples"] | None = None,
) -> Shaped[np.ndarray, "labellings samples"]:
    """Draw n permuted labellings; all label permutations of this project use this function.

    A group with several labels (such as a minimal pair) permutes them among its samples; a group with one label
    exchanges it with other such groups as a whole. Labels stay within their stratum; a group in two strata is treated
    as two groups.

    Args:
        labels: of any type, two classes or more.
        n: the number of labellings.
        rng: the random generator.
        groups: the group of each sample; None makes every sample its own group.
        strata: the stratum of each sample; None is a single stratum.
    """
    each, every = np.arange(len(labels)), np.zeros(len(labels), dtype=int)
    stratum = every if strata is None else _codes(strata)
    cluster = _codes(np.stack([stratum, each if groups is None else _codes(groups)]), axis=1)
    first, unit, block = _exchangeable(labels, cluster, stratum)
    keys = block + rng.random((n, len(block)))  # sorts units by block, and at random within a block
    drawn = np.empty(keys.shape, dtype=labels.dtype)
    drawn[:, np.argsort(block, kind="stable")] = labels[first][np.argsort(keys, axis=1)]
    return drawn[:, unit]


def _exchangeable(
    labels: np.ndarray, cluster: np.ndarray, stratum: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each unit's first sample, each sample's unit, and each unit's block; units of a block are exchangeable."""
    _, first = np.unique(cluster, return_index=True)
    mixed = (np.bincount(cluster, weights=labels != labels[first][cluster]) > 0)[cluster]
    unit = np.where(mixed, len(first) + np.arange(len(labels)), cluster)
    _, first, unit = np.unique(unit, return_index=True, return_inverse=True)
    return first, unit, np.where(mixed, len(labels) + cluster, stratum)[first]


def _codes(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    return np.unique(values, return_inverse=True, axis=axis)[1].reshape(-1)


def permutation_p(
    null: Real[np.ndarray, "permutations ..."],
    observed: float | Float[np.ndarray, "*statistics"],
    rounding: float | Float[np.ndarray, "*statistics"] = ROUNDING,
) -> Float[np.ndarray, "*statistics"]:
    """Return (1 + #{null >= observed}) / (1 + n) of each statistic; differences up to rounding count as equal."""
    return np.asarray((1 + (null >= observed - rounding).sum(axis=0)) / (1 + len(null)))


def label_permutation_p(
    y: Bool[np.ndarray, " samples"],
    score: Real[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    *,
    n: int = 999,
    seed: int = 0,
) -> float:
    """Return the one-sided p-value of a held-out AUROC: the score is fixed and the labels are permuted.

    Labels are permuted within minimal pairs, which keeps what pairs share, and between groups that have one label, so
    that the rows of such a group count once.
    """
    drawn = permuted_labels(y, n, named_rng(seed, "permuted test labels"), groups=groups)
    return float(permutation_p(aurocs_of_labels(score, drawn), auroc(y, score)))


@dataclass(frozen=True)
class ExchangeableUnits:
    """Units of a permutation test: the prompts of one group and category with a property, or without it."""

    has: Bool[np.ndarray, " units"]
    hits: Float[np.ndarray, " units"]
    n: Float[np.ndarray, " units"]
    category: Integer[np.ndarray, " units"]  # differences are taken within categories
    block: Integer[np.ndarray, " units"]  # units are exchanged only within a block

    @staticmethod
    def of(
        groups: Integer[np.ndarray, " samples"],
        category: Shaped[np.ndarray, " samples"],
        has: Bool[np.ndarray, " samples"],
        outcome: Real[np.ndarray, " samples"] | Bool[np.ndarray, " samples"],
    ) -> ExchangeableUnits:
        """Combine prompts into units."""
        described = np.stack([groups, np.unique(category, return_inverse=True)[1], has])
        (_, of, had), unit = np.unique(described, axis=1, return_inverse=True)
        unit, group = unit.reshape(-1), _codes(described[:2], axis=1)
        cluster = np.zeros(len(of), dtype=int)
        cluster[unit] = group
        mixed = np.bincount(cluster)[cluster] == 2  # the group has prompts of this category of both kinds
        block = np.where(mixed, of.max() + 1 + cluster, of)
        return ExchangeableUnits(
            had.astype(bool), np.bincount(unit, outcome), np.bincount(unit).astype(float), of, block
        )


def permuted_p(units: ExchangeableUnits, times: int, rng: np.random.Generator) -> float:
    """Return the two-sided p-value of a difference of rates, weighted by the categories of units with the property."""
    null = [
        _difference(units, permuted_labels(units.has, min(CHUNK, times - start), rng, strata=units.block))
        for start in range(0, times, CHUNK)
    ]
    return float(permutation_p(np.abs(np.concatenate(null)), abs(float(_difference(units, units.has[None])[0]))))


def _difference(units: ExchangeableUnits, has: np.ndarray) -> np.ndarray:
    """Return the difference of rates under each labelling; `has` is (labellings, units)."""
    to_category = np.eye(units.category.max() + 1)[units.category]  # (units, categories)
    hits, n = ((has * of) @ to_category for of in (units.hits, units.n))
    hits_without, n_without = units.hits @ to_category - hits, units.n @ to_category - n
    return np.asarray((hits - n * hits_without / n_without).sum(1) / n.sum(1))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests (Holm 1979)."""
    order = np.argsort(ps, kind="stable")
    stepped = np.array([ps[i] * (len(ps) - rank) for rank, i in enumerate(order)])
    adjusted = np.empty(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(p) for p in adjusted]
