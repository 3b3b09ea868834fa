"""Calibration of the dials: the share of prompts with a dial's label, by the probability that the dial reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.charts.shares import calibration
from experiments.charts.specification import DIAL_COLOURS, Chart, Row
from probes.statistics.intervals import effective_number
from scoring.rates import mean_of_groups

EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0)  # closer where dials read most prompts
LABEL = {"normative": "harmful", "epistemic": "uncertain"}  # the prompts that each dial declines


@dataclass(frozen=True)
class DialReadings:
    """The probabilities that one dial reads for the test prompts, with their labels."""

    probability: np.ndarray  # (n,)
    declining: np.ndarray  # (n,) bool: the prompt has the label that the dial declines
    groups: np.ndarray  # (n,) int


def calibration_chart(reads: Mapping[str, DialReadings]) -> Chart:
    """Draw a panel a dial: the share of prompts with its label in each bin, with 95 % intervals over groups."""
    rows = calibration_rows(reads)
    colours = {series_name(kind, read): DIAL_COLOURS[kind] for kind, read in reads.items()}
    return calibration(
        rows,
        colours,
        x_title="probability that the dial reads (log-odds scale)",
        y_title="share of prompts with the dial's label",
    )


def series_name(kind: str, read: DialReadings) -> str:
    """Return the name of a dial's panel, with its n."""
    return f"{kind} dial: {LABEL[kind]} (n = {len(read.probability)} test prompts)"


def calibration_rows(reads: Mapping[str, DialReadings]) -> list[Row]:
    """Return the points of the chart."""
    return [
        {"series": series_name(kind, read), **point}
        for kind, read in reads.items()
        for point in calibration_points(read)
    ]


def calibration_points(read: DialReadings) -> list[Row]:
    """Return one point per bin of `EDGES` that holds prompts: its mean probability x, the share y, its limits, n."""
    place = np.clip(np.digitize(read.probability, EDGES) - 1, 0, len(EDGES) - 2)
    found: list[Row] = []
    for here in np.unique(place):
        inside = place == here
        n, k = int(inside.sum()), float(read.declining[inside].sum())
        n_groups = effective_number(np.unique(read.groups[inside], return_counts=True)[1])
        share = mean_of_groups(k, n, n_groups)
        found.append(
            {
                "bin": f"{EDGES[here]:g} to {EDGES[here + 1]:g}",
                "x": float(read.probability[inside].mean()),
                "y": share.estimate,
                "low": share.low,
                "high": share.high,
                "n": n,
            }
        )
    return found
