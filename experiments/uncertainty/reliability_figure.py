"""The reliability diagram: how often answers given with such a confidence are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.run.charts import save

SHOWN = {"committed": ("all questions answered", "#0072B2", "o"),
         "known_answer": ("those with a known answer", "#D55E00", "s")}  # fmt: skip


def draw_reliability(record: dict[str, Any], path: Path) -> None:
    """Write figures/reliability.png and .svg."""
    save(reliability_diagram(record), path)


def reliability_diagram(record: dict[str, Any]) -> Figure:
    """Draw the share right in each bin of confidence, with 95 % intervals over groups and n."""
    figure = Figure(figsize=(5.6, 5.0))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--", label="right as often as sure")
    for shift, (name, (meaning, colour, marker)) in zip((-0.006, 0.006), SHOWN.items(), strict=True):
        bins = record[name]["bins"]
        if not bins:
            continue
        x = [one["confidence"] + shift for one in bins]
        y, low, high = ([one["right"][key] for one in bins] for key in ("estimate", "low", "high"))
        spread = [[v - b for v, b in zip(y, low, strict=True)], [t - v for v, t in zip(y, high, strict=True)]]
        n = sum(one["right"]["n"] for one in bins)
        axes.errorbar(x, y, spread, color=colour, marker=marker, ms=5, lw=1, capsize=3, label=f"{meaning} (n = {n})")
        for at, value, one in zip(x, y, bins, strict=True):
            above = name == "committed"
            axes.annotate(f"{one['right']['n']}", (at, value), (6, 6 if above else -11), textcoords="offset points",
                          fontsize=7, color=colour)  # fmt: skip
    axes.set(xlabel="confidence: share of samples that mean what the completion says",
             ylabel="share of completions that are right", xlim=(-0.03, 1.06), ylim=(-0.03, 1.06))  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure
