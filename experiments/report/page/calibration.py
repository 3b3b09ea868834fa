"""Calibration curves: how often prompts are of the declining class, by the probability a dial reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.report.page.drawing import Mark, plane
from probes.statistics.intervals import effective_number
from scoring.rates import mean_of_groups

EDGES = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class Read:
    """What one dial read of the test prompts."""

    probability: np.ndarray  # (n,)
    declining: np.ndarray  # (n,) bool: the class it is to decline
    groups: np.ndarray  # (n,) int


def calibration_charts(reads: Mapping[str, Read]) -> str:
    """Return a chart for each dial; points hold their n and interval."""
    shown = "".join(
        f"<figure>{plane('probability read', 'of the declining class', marks(read), diagonal=True)}"
        f"<figcaption>{kind} dial, calibration on test prompts, n = {len(read.probability):,}; bars: 95 %</figcaption>"
        "</figure>"
        for kind, read in reads.items()
    )
    return f'<h3>Are the probabilities to be believed?</h3><div class="charts">{shown}</div>' if shown else ""


def marks(read: Read) -> list[Mark]:
    """Return a point for each tenth of the scale that holds prompts."""
    place = np.clip(np.digitize(read.probability, EDGES) - 1, 0, len(EDGES) - 2)
    found = []
    for tenth in np.unique(place):
        inside = place == tenth
        n, k = int(inside.sum()), float(read.declining[inside].sum())
        n_groups = effective_number(np.unique(read.groups[inside], return_counts=True)[1])
        share = mean_of_groups(k, n, n_groups)
        x = float(read.probability[inside].mean())
        told = (f"read {EDGES[tenth]:.1f} to {EDGES[tenth + 1]:.1f} (mean {x:.2f}): {share.estimate:.1%} "
                f"[{share.low:.1%}, {share.high:.1%}] of the declining class, n = {n}")  # fmt: skip
        found.append(Mark(x, share.estimate, "two_dials", told, y_ci=(share.low, share.high)))
    return found
