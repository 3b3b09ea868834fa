"""Transfer: the test AUROC of one contrast's direction on another contrast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.geometry.fitted_direction import FittedDirection, check_no_leakage, check_same_locus, held_out
from probes.statistics.intervals import Interval
from probes.statistics.metrics import aurocs, aurocs_of_labels, discrimination
from probes.statistics.permutation import permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


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


def transfer(a: FittedDirection, b: FittedDirection, alpha: float = 0.05) -> Transfer:
    """Test a's direction on b's test rows, beside all of a's permuted directions at once.

    Raises:
        ValueError: the loci differ, b's test part lacks a class, or a group of a's training part is in it.
    """
    check_same_locus(a, b)
    check_no_leakage(a.contrast, b.contrast)
    X, y, groups = held_out(b)
    scores = X @ np.vstack([a.vector, a.permuted]).T
    measured = discrimination(y, scores[:, 0], groups, alpha=alpha)
    observed, null = abs(measured.auroc.estimate - 0.5), aurocs(scores[:, 1:], y)
    rng = named_rng(a.seed, "transfer", a.contrast.name, b.contrast.name)
    relabelled = aurocs_of_labels(scores[:, 0], permuted_labels(y, len(null), rng, groups=groups))
    p_fitted, p_tested = (float(permutation_p(np.abs(values - 0.5), observed)) for values in (null, relabelled))
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
