"""Reliability diagram: the share of right answers by confidence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.charts.shares import reliability
from experiments.charts.specification import BLUE, ORANGE, Chart, Row, save
from experiments.uncertainty.results import Reliability

SHOWN = {"committed": ("all questions answered", BLUE), "known_answer": ("those with a known answer", ORANGE)}
X, Y = "confidence: share of samples with the completion's meaning", "share of completions that are right"


def draw_reliability(found: Mapping[str, Reliability], path: Path) -> None:
    """Write figures/reliability.png and .svg."""
    save(reliability_diagram(found), path)


def reliability_diagram(found: Mapping[str, Reliability]) -> Chart:
    """Draw the share right in each bin of confidence, with 95 % intervals over groups and n."""
    rows = reliability_rows(found)
    colours = {str(row["series"]): str(row["colour"]) for row in rows}
    return reliability(rows, colours, x_title=X, y_title=Y)


def reliability_rows(found: Mapping[str, Reliability]) -> list[Row]:
    """Return the points of the diagram, one a bin that has completions."""
    rows: list[Row] = []
    for name, (meaning, colour) in SHOWN.items():
        bins = found[name].bins
        series = f"{meaning} (n = {sum(one.right.n or 0 for one in bins)})"
        rows += [
            {
                "series": series,
                "colour": colour,
                "x": one.confidence,
                "y": one.right.estimate,
                "low": one.right.low,
                "high": one.right.high,
                "n": one.right.n,
            }
            for one in bins
        ]
    return rows
