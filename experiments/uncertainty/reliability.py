"""Reliability: the share of right answers by bin of confidence, with intervals, the mean gap and the Brier score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.uncertainty.results import ConfidenceBin, Reliability
from probes.statistics.intervals import Estimate
from probes.statistics.means import mean_interval
from scoring.rates import grouped_rate

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8)  # bins (start, end]; confidence 1 (all samples agree) is a bin of its own


def reliability(
    confidence: Float[np.ndarray, " answers"], right: Bool[np.ndarray, " answers"], groups: Int[np.ndarray, " answers"]
) -> Reliability:
    """Return bins of confidence with the share of right answers in each, the mean gap, and the Brier score.

    Args:
        confidence: of each answer, in [0, 1].
        groups: independent groups; intervals are over these.

    Returns:
        `gap` is above 0 if the model is overconfident, and `brier` is the mean squared error.
    """
    place = np.where(confidence >= 1, len(EDGES), np.searchsorted(EDGES, confidence, side="left") - 1).clip(min=0)
    ends = [*zip(EDGES, (*EDGES[1:], 1.0), strict=True), (1.0, 1.0)]
    bins = [
        ConfidenceBin(
            start=ends[b][0],
            end=ends[b][1],
            confidence=float(confidence[here].mean()),
            right=grouped_rate(right[here], groups[here]).counted(int(here.sum()), groups[here]),
        )
        for b in range(len(ends))
        if (here := place == b).any()
    ]
    return Reliability(
        bins=bins,
        gap=_over_groups(confidence - right, groups, -1.0).counted(len(right), groups),
        brier=_over_groups((confidence - right) ** 2, groups, 0.0).counted(len(right), groups),
    )


def _over_groups(values: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"], low: float) -> Estimate:
    """Return the mean over groups, each counted once, with an interval that is valid where all agree."""
    if not len(values):
        return Estimate(float("nan"), low, 1.0)
    _, code = np.unique(groups, return_inverse=True)
    means = np.bincount(code, weights=values) / np.bincount(code)
    return mean_interval(means.round(12), low, 1.0)  # rounding errors are not variance
