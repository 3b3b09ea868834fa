"""Transfer: the test AUROC of one contrast's direction on another contrast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.geometry.fitted_direction import FittedDirection, check_no_leakage, check_same_locus, held_out
from probes.statistics.intervals import Estimate
from probes.statistics.metrics import aurocs, aurocs_of_labels, discrimination
from probes.statistics.permutation import PValue, n_labellings, permutation_p, permuted_labels
from probes.statistics.seeds import named_rng


@dataclass(frozen=True)
class Transfer:
    """The AUROC of the direction of `fitted_on` on the test rows of `tested_on`.

    An AUROC far below 0.5 is as informative as one far above; it is reported unchanged, and p-values are two-sided, for
    its distance from 0.5. Report `p`, the larger of two: `p_fitted` compares with directions of permuted training
    labels (is *this* contrast needed, or is any direction enough?), `p_tested` with permuted test labels (do these
    classes differ along the direction?).
    """

    fitted_on: str
    tested_on: str
    auroc: Estimate  # with an interval over the groups of the test rows
    p: PValue
    p_fitted: PValue
    p_tested: PValue
    null_low: float  # 2.5 % and 97.5 % quantiles over permuted directions
    null_high: float
    n: int


def transfer(a: FittedDirection, b: FittedDirection, alpha: float = 0.05) -> Transfer:
    """Test the direction of `a` on the test rows of `b`, with the permuted directions of `a` as null.

    Raises:
        ValueError: the loci differ, the test part of `b` lacks a class, or it contains a training group of `a`.
    """
    check_same_locus(a, b)
    check_no_leakage(a.contrast, b.contrast)
    X, y, groups = held_out(b)
    scores = X @ np.vstack([a.vector, a.permuted]).T
    measured = discrimination(y, scores[:, 0], groups, alpha=alpha)
    observed, null = abs(measured.auroc.estimate - 0.5), aurocs(scores[:, 1:], y)
    rng = named_rng(a.seed, "transfer", a.contrast.name, b.contrast.name)
    relabelled = aurocs_of_labels(scores[:, 0], permuted_labels(y, len(null), rng, groups=groups))
    p_fitted, p_tested = (
        float(permutation_p(np.abs(values - 0.5), observed, labellings=labellings))
        for values, labellings in ((null, a.n_labellings), (relabelled, n_labellings(y, groups=groups)))
    )
    low, high = np.quantile(null, [0.025, 0.975])
    return Transfer(
        fitted_on=a.contrast.name,
        tested_on=b.contrast.name,
        auroc=measured.auroc,
        p=float(np.max([p_fitted, p_tested])),  # NaN if either is
        p_fitted=p_fitted,
        p_tested=p_tested,
        null_low=float(low),
        null_high=float(high),
        n=len(null),
    )
