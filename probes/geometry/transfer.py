"""Whether a direction fitted on one contrast tells the classes of another."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from probes.geometry.fitted_direction import Fitted, held_out, leakage, same_locus
from probes.geometry.permutation_null import tail
from probes.grid.nulls import aurocs, aurocs_of_labels, permute_labels
from probes.statistics.intervals import Interval
from probes.statistics.metrics import discrimination


@dataclass(frozen=True)
class Transfer:
    """The AUROC of `fitted_on`'s direction on `tested_on`'s test rows.

    Far below 0.5 it tells as much as far above, with the opposite sign; it is reported as it is, and p-values are
    two-sided, of its distance from 0.5. `p` is the one to read: the larger of two, since each rules out one way to have
    learnt nothing. `p_fitted` sets the AUROC beside directions of permuted training labels (does it take *this*
    contrast, or does any direction do?), `p_tested` beside permuted test labels (do these classes differ along it?).
    """

    fitted_on: str
    tested_on: str
    auroc: Interval  # over the groups of the test rows
    p: float
    p_fitted: float
    p_tested: float
    null_low: float  # between which 95 % of permuted directions lie
    null_high: float
    n: int


def transfer(a: Fitted, b: Fitted, alpha: float = 0.05) -> Transfer:
    """Test a's direction on b's test rows, beside all of a's permuted directions at once.

    Raises:
        ValueError: the loci differ, b's test part lacks a class, or a group of a's training part is in it.
    """
    same_locus(a, b)
    leakage(a.contrast, b.contrast)
    X, y, groups = held_out(b)
    scores = X @ np.vstack([a.vector, a.permuted]).T
    measured = discrimination(y, scores[:, 0], groups, alpha=alpha)
    observed, null = abs(measured.auroc.estimate - 0.5), aurocs(scores[:, 1:], y)
    relabelled = _relabelled(y, scores[:, 0], groups, len(null), [a.seed, zlib.crc32(b.contrast.name.encode())])
    p_fitted, p_tested = (tail(np.abs(values - 0.5), observed) for values in (null, relabelled))
    low, high = np.quantile(null, [0.025, 0.975])
    return Transfer(
        fitted_on=a.contrast.name,
        tested_on=b.contrast.name,
        auroc=measured.auroc,
        p=max(p_fitted, p_tested),
        p_fitted=p_fitted,
        p_tested=p_tested,
        null_low=float(low),
        null_high=float(high),
        n=len(null),
    )


def _relabelled(y: np.ndarray, score: np.ndarray, groups: np.ndarray, n: int, seed: list[int]) -> np.ndarray:
    """Return the AUROCs of one score against n labellings permuted as the labels were given; (n,)."""
    rng, (_, code) = np.random.default_rng(seed), np.unique(groups, return_inverse=True)
    return aurocs_of_labels(score, np.stack([permute_labels(y, code, rng) for _ in range(n)]))
