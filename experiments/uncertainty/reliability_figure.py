"""Reliability diagram: the share of right answers by confidence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from experiments.run.charts import save
from experiments.uncertainty.results import Reliability

SHOWN = {"committed": ("all questions answered", "#0072B2", "o"),
         "known_answer": ("those with a known answer", "#D55E00", "s")}  # fmt: skip


def draw_reliability(found: Mapping[str, Reliability], path: Path) -> None:
    """Write figures/reliability.png and .svg."""
    save(reliability_diagram(found), path)


def reliability_diagram(found: Mapping[str, Reliability]) -> Figure:
    """Draw the share right in each bin of confidence, with 95 % intervals over groups and n."""
    figure = Figure(figsize=(5.6, 5.0))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--", label="perfect calibration")
    for shift, (name, (meaning, colour, marker)) in zip((-0.006, 0.006), SHOWN.items(), strict=True):
        bins = found[name].bins
        if not bins:
            continue
        x, right = [one.confidence + shift for one in bins], [one.right.interval for one in bins]
        y = [each.estimate for each in right]
        spread = [[each.estimate - each.low for each in right], [each.high - each.estimate for each in right]]
        n = sum(one.right.n or 0 for one in bins)
        axes.errorbar(x, y, spread, color=colour, marker=marker, ms=5, lw=1, capsize=3, label=f"{meaning} (n = {n})")
        for at, value, one in zip(x, y, bins, strict=True):
            above = name == "committed"
            axes.annotate(f"{one.right.n}", (at, value), (6, 6 if above else -11), textcoords="offset points",
                          fontsize=7, color=colour)  # fmt: skip
    axes.set(xlabel="confidence: share of samples with the meaning of the completion",
             ylabel="share of completions that are right", xlim=(-0.03, 1.06), ylim=(-0.03, 1.06))  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure
