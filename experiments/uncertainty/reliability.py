"""Whether answers given with such a confidence are right so often: bins with intervals, and the gap on average."""

from __future__ import annotations

from typing import Any

import numpy as np

from probes.statistics.bounded_mean import mean_interval
from probes.statistics.intervals import Interval
from scoring.estimate import estimate_of
from scoring.rates import grouped_rate

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8)  # of the bins, each up to and with the next; all samples agreeing is one of its own


def reliability(confidence: np.ndarray, right: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """Return bins of confidence with the share of right answers in each, the mean gap, and the Brier score.

    Args:
        confidence: of each answer, in [0, 1], (n_answers,).
        right: bool, (n_answers,).
        groups: what belongs together, (n_answers,); intervals are over these.

    Returns:
        `bins` (`from`, `to`, mean `confidence`, `right` with its interval and n), `gap` = mean confidence less the
        share right, above 0 where the model is surer than it is right, and `brier`, the mean squared error.
    """
    place = np.where(confidence >= 1, len(EDGES), np.searchsorted(EDGES, confidence, side="left") - 1).clip(min=0)
    ends = [*zip(EDGES, (*EDGES[1:], 1.0), strict=True), (1.0, 1.0)]
    bins = [
        {"from": ends[b][0], "to": ends[b][1], "confidence": float(confidence[here].mean()),
         "right": estimate_of(grouped_rate(right[here], groups[here]), int(here.sum()), groups[here]).to_dict()}
        for b in range(len(ends)) if (here := place == b).any()
    ]  # fmt: skip
    return {
        "bins": bins,
        "gap": estimate_of(_over_groups(confidence - right, groups, -1.0), len(right), groups).to_dict(),
        "brier": estimate_of(_over_groups((confidence - right) ** 2, groups, 0.0), len(right), groups).to_dict(),
    }


def _over_groups(values: np.ndarray, groups: np.ndarray, low: float) -> Interval:
    """Return the mean over groups, each counting once, with an interval that is honest where all agree."""
    if not len(values):
        return Interval(float("nan"), low, 1.0)
    _, code = np.unique(groups, return_inverse=True)
    means = np.bincount(code, weights=values) / np.bincount(code)
    return mean_interval(means.round(12), low, 1.0)  # what differs by rounding alone is no spread
