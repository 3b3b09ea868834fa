"""Permutation tests: label permutation that respects groups, p-values, and Holm's correction.

The null hypothesis of every test is that labels are independent of the measurements, while labels of one group (a pair,
entity or template) may depend on each other in any way. Under it two kinds of exchange leave the distribution
unchanged: groups of equal composition (as many samples in each stratum) exchange their label vectors whole, and samples
of one group and stratum exchange their labels. So the tests are exact for all rates, also 0 and 1, and any correlation
within groups. Exchanging labels sample by sample rejects too often if labels depend on the group. Labels are never
flipped, because that would change how many samples have each label, in every stratum.

A group of unique composition keeps its number of labels of each kind. With few exchanges the smallest possible p-value
is large, so there is no p-value below `MIN_LABELLINGS` distinct labellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Real, Shaped
from scipy.special import gammaln

from probes.statistics.intervals import Number
from probes.statistics.metrics import auroc, aurocs
from probes.statistics.seeds import named_rng

CHUNK = 250  # permutations at a time
ROUNDING = 1e-9  # statistics that differ by less count as equal
MIN_LABELLINGS = 1000  # with fewer distinct labellings a permutation test has no p-value
PValue = Number  # NaN (null in JSON): too few distinct labellings


def permuted_labels(
    labels: Shaped[np.ndarray, " samples"],
    n: int,
    rng: np.random.Generator,
    *,
    groups: Shaped[np.ndarray, " samples"] | None = None,
    strata: Shaped[np.ndarray, " samples"] | None = None,
) -> Shaped[np.ndarray, "labellings samples"]:
    """Draw n permuted labellings, all equally likely; all label permutations of this project use this function.

    Each stratum keeps its number of labels of each kind. Without groups every sample is its own.
    """
    drawn = np.empty((n, len(labels)), dtype=labels.dtype)
    for samples, cell in _equal_groups(len(labels), groups, strata):
        order = np.argsort(rng.random((n, len(samples))), axis=1)
        vectors = labels[samples][order]  # (labellings, groups, size)
        if len(cell) > 1:  # the cells are sorted, so sorting by cell and chance shuffles within each
            keys = cell + rng.random(vectors.shape)
            vectors = np.take_along_axis(vectors, np.argsort(keys, axis=2), axis=2)
        drawn[:, samples] = vectors
    return drawn


def n_labellings(
    labels: Shaped[np.ndarray, " samples"],
    *,
    groups: Shaped[np.ndarray, " samples"] | None = None,
    strata: Shaped[np.ndarray, " samples"] | None = None,
) -> float:
    """Return the number of distinct labellings that `permuted_labels` draws from; infinity above 1e300."""
    code, log = _codes(labels), 0.0
    one_hot = np.eye(int(code.max()) + 1 if len(code) else 0)
    for samples, cell in _equal_groups(len(labels), groups, strata):
        of_cell = [one_hot[code[samples[:, cell == c]]].sum(axis=1) for c in np.unique(cell)]
        counts = np.stack(of_cell, axis=1)  # (groups, cells, kinds of label)
        log += float((gammaln(counts.sum(axis=2) + 1) - gammaln(counts + 1).sum(axis=2)).sum())  # within cells
        _, alike = np.unique(counts.reshape(len(counts), -1), axis=0, return_counts=True)
        log += float(gammaln(len(counts) + 1) - gammaln(alike + 1).sum())  # among groups
    if log > 690:
        return float("inf")
    return float(np.round(np.exp(log))) if log < 34 else float(np.exp(log))


def _equal_groups(
    n: int, groups: np.ndarray | None, strata: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the samples, (groups, size), of groups of equal composition, and the stratum of each place in a group."""
    group = np.arange(n) if groups is None else _codes(groups)
    stratum = np.zeros(n, dtype=int) if strata is None else _codes(strata)
    order = np.lexsort((stratum, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    members = np.split(order, starts[1:]) if n else []
    by_composition: dict[tuple[int, ...], list[np.ndarray]] = {}
    for rows in members:
        by_composition.setdefault(tuple(stratum[rows].tolist()), []).append(rows)
    for cell, samples in by_composition.items():
        yield np.stack(samples), np.array(cell)


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def permutation_p(
    null: Real[np.ndarray, "permutations ..."],
    observed: float | Float[np.ndarray, "*statistics"],
    rounding: float | Float[np.ndarray, "*statistics"] = ROUNDING,
    *,
    labellings: float = float("inf"),
) -> Float[np.ndarray, "*statistics"]:
    """Return (1 + #{null >= observed}) / (1 + n) of each statistic; differences up to rounding count as equal.

    NaN if the null has fewer than `MIN_LABELLINGS` distinct labellings.
    """
    p = np.asarray((1 + exceeds(null, observed, rounding).sum(axis=0)) / (1 + len(null)))
    return p if labellings >= MIN_LABELLINGS else np.full_like(p, np.nan)


def exceeds(
    null: Real[np.ndarray, "permutations ..."],
    observed: float | Float[np.ndarray, "*statistics"],
    rounding: float | Float[np.ndarray, "*statistics"] = ROUNDING,
) -> Bool[np.ndarray, "permutations ..."]:
    """Return which statistics of a null are at least the observed one; differences up to rounding count as equal."""
    return np.asarray(null >= observed - rounding)


def label_permutation_p(
    y: Bool[np.ndarray, " samples"],
    score: Real[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    *,
    n: int = 999,
    seed: int = 0,
) -> float:
    """Return the one-sided p-value of a held-out AUROC: the score is fixed, labels are permuted; NaN with too few."""
    drawn = permuted_labels(y, n, named_rng(seed, "permuted test labels"), groups=groups)
    null, labellings = aurocs(score, drawn), n_labellings(y, groups=groups)
    return float(permutation_p(null, auroc(y, score), labellings=labellings))


def permuted_p(
    has: Bool[np.ndarray, " samples"],
    outcome: Real[np.ndarray, " samples"] | Bool[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    category: Shaped[np.ndarray, " samples"] | None,
    times: int,
    rng: np.random.Generator,
) -> float:
    """Return the two-sided p-value of a difference of mean outcomes between samples with a property and without it.

    Differences are taken within categories, each with samples of both kinds, and weighted by the samples with the
    property. NaN with too few distinct labellings.
    """
    category = np.zeros(len(has), dtype=int) if category is None else _codes(category)
    to_category = np.eye(int(category.max()) + 1)[category]  # (samples, categories)
    drawn = (
        permuted_labels(has, min(CHUNK, times - start), rng, groups=groups, strata=category)
        for start in range(0, times, CHUNK)
    )
    null = np.concatenate([_difference(labels, outcome, to_category) for labels in drawn])
    observed = float(_difference(has[None], outcome, to_category)[0])
    labellings = n_labellings(has, groups=groups, strata=category)
    return float(permutation_p(np.abs(null), abs(observed), labellings=labellings))


def _difference(has: np.ndarray, outcome: np.ndarray, to_category: np.ndarray) -> np.ndarray:
    """Return the difference under each labelling; `has` is (labellings, samples)."""
    hits, n = (has * outcome) @ to_category, has @ to_category
    hits_without, n_without = outcome @ to_category - hits, to_category.sum(axis=0) - n
    return np.asarray((hits - n * hits_without / n_without).sum(axis=1) / n.sum(axis=1))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests (Holm 1979); a NaN is no test and remains."""
    adjusted = np.array(ps, dtype=float)
    tested = np.flatnonzero(~np.isnan(adjusted))
    order = tested[np.argsort(adjusted[tested], kind="stable")]
    stepped = adjusted[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(p) for p in adjusted]
