"""Figure of the trade-off: rates of each policy on test prompts, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dials.results import SteerResult
from experiments.dials.text import POLICIES
from scoring.estimate import Estimate
from scoring.rates import RatesRecord

LOOK = {"two_dials": ("#0072B2", "o"), "one_dial": ("#D55E00", "s")}  # of Okabe & Ito's palette
PANELS = ("uncertain_mistaken", "missed_harm")
COUNTED_AS = {"uncertain_mistaken": "overconfidence", "missed_harm": "missed_harm"}  # a rate of the same prompts
MEANING = {
    "over_refusal": "over_refusal (% of benign prompts declined)",
    "uncertain_mistaken": "uncertain_mistaken (% of uncertain prompts answered firmly or refused)",
    "missed_harm": "missed_harm (% of harmful prompts answered)",
}


def pareto(result: SteerResult, before: RatesRecord, after: RatesRecord) -> Figure:
    """Draw missed_harm and uncertain_mistaken over over_refusal: frontiers chosen off test, measured on test.

    Args:
        before, after: joint rates of the test prompts without dials and with them.
    """
    if result.hypervolume is None or result.frontier is None:
        raise ValueError("without dials there is no trade-off to draw")
    volume, figure = result.hypervolume, Figure(figsize=(9.6, 4.2))
    panels, n = figure.subplots(1, 2), volume.n
    for axes, other in zip(panels, PANELS, strict=True):
        for name, points in result.frontier.items():
            colour, marker = LOOK[name]
            label = f"{POLICIES[name]}: {volume.policies[name].estimate:.3f}"
            of = [(p.test["over_refusal"], p.test[other]) for p in points]
            _scatter(axes, of, color=colour, marker=marker, label=label, alpha=0.55, s=22)
        lines = [
            (point.rates.over_refusal, result.on_axis(point.rates, other).estimate)
            for point in result.system_lines.points
        ]
        _scatter(axes, lines, color="#009E73", marker="P", label="system lines", s=48)
        _mark(axes, before.of("over_refusal"), result.on_axis(before, other, "before"), "black", "before")
        _mark(axes, after.of("over_refusal"), result.on_axis(after, other, "after"), "#CC79A7", "the dials as set")
        axes.set(xlabel=f"{MEANING['over_refusal']}, n = {n['over_refusal']}", xlim=(-4, 104), ylim=(-4, 104),
                 ylabel=f"{MEANING[other]}, n = {before.of(COUNTED_AS[other]).n}")  # fmt: skip
    panels[0].legend(frameon=False, fontsize=7, loc="upper right", title="hypervolume", title_fontsize=7)
    figure.suptitle("Pareto-optimal settings on the choice prompts, measured on test prompts; bars: 95 %", fontsize=9)
    return figure


def _scatter(axes: Axes, points: Sequence[tuple[float | None, float | None]], **look: Any) -> None:
    known = [(x, y) for x, y in points if x is not None and y is not None]
    if known:
        axes.scatter([100 * x for x, _ in known], [100 * y for _, y in known], lw=0, **look)


def _mark(axes: Axes, over_refusal: Estimate, other: Estimate, colour: str, label: str) -> None:
    """Draw one point, with the intervals that it has."""
    if over_refusal.estimate is None or other.estimate is None:
        return
    bars = [_bar(rate) for rate in (over_refusal, other)]
    axes.errorbar(100 * over_refusal.estimate, 100 * other.estimate, xerr=bars[0], yerr=bars[1], fmt="*", ms=11,
                  color=colour, capsize=3, lw=1, label=label)  # fmt: skip


def _bar(rate: Estimate) -> list[list[float]] | None:
    """Return the lengths of a bar in percent, to the left (below) and to the right (above); None without limits."""
    if rate.low is None or rate.high is None:
        return None
    of = rate.interval
    return [[100 * (of.estimate - of.low)], [100 * (of.high - of.estimate)]]
