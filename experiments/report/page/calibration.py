"""Calibration charts: the share of prompts with a dial's label, by the probability that the dial reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.report.page.drawing import ChartPoint, share_chart
from probes.statistics.intervals import effective_number
from scoring.rates import mean_of_groups

EDGES = np.linspace(0, 1, 11)
X = "probability that the dial reads"
LABEL = {"normative": "harmful", "epistemic": "uncertain"}  # the prompts that each dial declines


@dataclass(frozen=True)
class DialReadings:
    """The probabilities that one dial reads for the test prompts, with their labels."""

    probability: np.ndarray  # (n,)
    declining: np.ndarray  # (n,) bool: the prompt has the label that the dial declines
    groups: np.ndarray  # (n,) int


def calibration_charts(reads: Mapping[str, DialReadings]) -> str:
    """Return one chart per dial; the tooltip of a point gives its n and interval."""
    shown = "".join(
        f"<figure>{share_chart(X, f'share of {LABEL[kind]} prompts', calibration_points(read), diagonal=True)}"
        f"<figcaption>Calibration of the {kind} dial on test prompts, n = {len(read.probability):,}; bars: 95 %"
        "</figcaption></figure>"
        for kind, read in reads.items()
    )
    return f'<h3>Calibration</h3><div class="charts">{shown}</div>' if shown else ""


def calibration_points(read: DialReadings) -> list[ChartPoint]:
    """Return one point per tenth of the probability scale that holds prompts."""
    place = np.clip(np.digitize(read.probability, EDGES) - 1, 0, len(EDGES) - 2)
    found = []
    for tenth in np.unique(place):
        inside = place == tenth
        n, k = int(inside.sum()), float(read.declining[inside].sum())
        n_groups = effective_number(np.unique(read.groups[inside], return_counts=True)[1])
        share = mean_of_groups(k, n, n_groups)
        x = float(read.probability[inside].mean())
        described = (f"probability {EDGES[tenth]:.1f} to {EDGES[tenth + 1]:.1f} (mean {x:.2f}): share "
                     f"{share.estimate:.1%} [{share.low:.1%}, {share.high:.1%}], n = {n}")  # fmt: skip
        found.append(ChartPoint(x, share.estimate, "two_dials", described, y_ci=(share.low, share.high)))
    return found
