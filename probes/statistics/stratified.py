"""Estimate of a sum of stratum means of bounded differences, over groups, with width also where nothing varies.

Each stratum gets two groups more, one at either bound, as Bonett & Price (2012, J. Educ. Behav. Stat. 37:479) add one
to both discordant cells of a paired table. Its mean and variance are those with them (an adjusted Wald interval), so
the interval has a width when no difference was seen, and the width shrinks with the number of groups.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import stdtrit

from probes.statistics.intervals import Estimate, effective_number


def sum_of_means(
    values: Float[np.ndarray, " samples"],
    strata: Shaped[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    bounds: Mapping[str, float],
    alpha: float = 0.05,
) -> Estimate:
    """Return the sum over strata of the mean of the values, with an interval over groups.

    Args:
        values: of a stratum s between -bounds[s] and bounds[s].
        groups: independent groups; a group may have samples of several strata.
        bounds: the largest absolute value of each stratum; one without samples gives (nan, -sum, sum).

    Group contributions are inflated by their leverage (CR3, Bell & McCaffrey 2002); the degrees of freedom are the
    smallest effective number of groups of a stratum, minus one.
    """
    most = float(sum(bounds.values()))
    _, code = np.unique(groups, return_inverse=True)
    off = np.zeros(code.max() + 1 if len(code) else 1)
    estimate = centre = variance = 0.0
    freedom = np.inf
    for name, bound in bounds.items():
        mine = strata == name
        if not mine.any():
            return Estimate(float("nan"), -most, most)
        sizes = np.bincount(code[mine], minlength=len(off))
        independent = effective_number(sizes)
        added = 1 / (independent + 2)  # weight of each of the two groups
        mean, kept = float(values[mine].mean()), 1 - 2 * added
        middle, inflate = kept * mean, np.sqrt(1 - added) / (1 - kept * sizes / mine.sum())
        off += np.bincount(code[mine], values[mine] - middle, len(off)) * inflate * kept / mine.sum()
        variance += 2 * (bound**2 + middle**2) * (added**2) / (1 - added)
        estimate, centre, freedom = estimate + mean, centre + middle, min(freedom, independent - 1)
    half = float(stdtrit(max(1.0, freedom), 1 - alpha / 2) * np.sqrt(variance + (off**2).sum()))
    return Estimate(estimate, max(-most, min(estimate, centre - half)), min(most, max(estimate, centre + half)))
