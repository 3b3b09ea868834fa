"""Raw agreement and Cohen's kappa of two people who label the same samples, with intervals over groups."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

from probes.statistics.intervals import Estimate, clopper_pearson, effective_number


def agreement(
    a: Shaped[np.ndarray, " samples"],
    b: Shaped[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    weights: Float[np.ndarray, " samples"],
    alpha: float = 0.05,
) -> tuple[Estimate, Estimate]:
    """Return the share of samples with equal labels, and kappa: that share beyond chance (Cohen 1960).

    The interval of the share is Clopper and Pearson's at the effective number of groups. That of kappa takes the
    agreement by chance as known, so it has a width when all labels are equal. Kappa is NaN where both give every sample
    the same label, since then all agreement may be chance.

    Args:
        weights: of each sample, one over its probability of being drawn.
    """
    if len(a) == 0:
        return Estimate(float("nan"), 0.0, 1.0), Estimate(float("nan"), -1.0, 1.0)
    share = weights / weights.sum()
    equal = float(share[a == b].sum())
    chance = sum(float(share[a == label].sum() * share[b == label].sum()) for label in np.unique(a))
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    n = effective_number(np.bincount(code, weights))
    raw = clopper_pearson(min(equal, 1.0) * n, n, alpha)
    if chance > 1 - 1e-9:
        return raw, Estimate(float("nan"), -1.0, 1.0)
    kappa = (np.array([equal, raw.low, raw.high]) - chance) / (1 - chance)
    return raw, Estimate(*kappa.tolist())
