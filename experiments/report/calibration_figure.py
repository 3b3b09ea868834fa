"""The calibration diagram of the dials, as a figure."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from experiments.report.page.calibration import LABEL, DialReadings, calibration_points

STYLE = {"normative": ("#D55E00", "s"), "epistemic": ("#009E73", "o")}  # of Okabe & Ito's palette


def calibration_diagram(reads: Mapping[str, DialReadings]) -> Figure:
    """Draw the share of prompts with each dial's label (harmful, uncertain) in each tenth of its probability.

    Error bars are 95 % intervals over groups.
    """
    figure = Figure(figsize=(5.0, 4.6))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--", label="perfect calibration")
    for kind, read in reads.items():
        colour, marker = STYLE[kind]
        points = calibration_points(read)
        x, y = [point.x for point in points], [point.y for point in points]
        limits = [point.y_ci or (point.y, point.y) for point in points]
        spread = [[v - low for v, (low, _) in zip(y, limits, strict=True)],
                  [high - v for v, (_, high) in zip(y, limits, strict=True)]]  # fmt: skip
        axes.errorbar(x, y, spread, color=colour, marker=marker, ms=5, lw=1, ls="", capsize=3,
                      label=f"{kind} dial: {LABEL[kind]} (n = {len(read.probability)} test prompts)")  # fmt: skip
    axes.set(xlabel="probability that the dial reads", ylabel="share of prompts with the dial's label",
             xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure
