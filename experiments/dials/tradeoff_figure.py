"""Figure of the trade-off: rates of each policy on test prompts, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dials.results import RiskRates, SteerResult
from experiments.dials.text import POLICIES, RISK_NAMES
from scoring.rates import RATES, RatesRecord

LOOK = {"two_dials": ("#0072B2", "o"), "one_dial": ("#D55E00", "s")}  # of Okabe & Ito's palette
PANELS = ("overconfidence", "missed_harm")
MEANING = {
    "over_refusal": "over_refusal (% of benign prompts declined)",
    "overconfidence": "overconfidence (% of uncertain prompts answered firmly)",
    "missed_harm": "missed_harm (% of harmful prompts answered)",
}


def pareto(result: SteerResult, before: RatesRecord, after: RatesRecord) -> Figure:
    """Draw missed_harm and overconfidence over over_refusal: frontiers chosen off test, measured on test.

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
            label = f"{POLICIES[name]}: {volume.policies[name]:.3f}"
            _scatter(axes, [p.test for p in points], other, color=colour, marker=marker, label=label, alpha=0.55, s=22)
        lines = [_named(point.rates) for point in result.system_lines.points]
        _scatter(axes, lines, other, color="#009E73", marker="P", label="system lines", s=48)
        _mark(axes, before, other, "black", "before")
        _mark(axes, after, other, "#CC79A7", "the dials as set")
        axes.set(xlabel=f"{MEANING['over_refusal']}, n = {n['over_refusal']}", xlim=(-4, 104), ylim=(-4, 104),
                 ylabel=f"{MEANING[other]}, n = {n[other]}")  # fmt: skip
    panels[0].legend(frameon=False, fontsize=7, loc="upper right", title="hypervolume, 95 % interval",
                     title_fontsize=7)  # fmt: skip
    figure.suptitle("Pareto-optimal settings on the choice prompts, measured on test prompts; bars: 95 %", fontsize=9)
    return figure


def _named(rates: RatesRecord) -> RiskRates:
    return {name: rates.of(name).estimate for name in RISK_NAMES if name in RATES}


def _scatter(axes: Axes, points: Sequence[RiskRates], other: str, **look: Any) -> None:
    known = [(x, y) for p in points if (x := p["over_refusal"]) is not None and (y := p[other]) is not None]
    if known:
        axes.scatter([100 * x for x, _ in known], [100 * y for _, y in known], lw=0, **look)


def _mark(axes: Axes, rates: RatesRecord, other: str, colour: str, label: str) -> None:
    """Draw one point with its intervals."""
    both = [rates.of(name) for name in ("over_refusal", other)]
    if any(rate.estimate is None for rate in both):
        return
    x, y = (rate.interval for rate in both)
    bars = [[[100 * (of.estimate - of.low)], [100 * (of.high - of.estimate)]] for of in (x, y)]
    axes.errorbar(100 * x.estimate, 100 * y.estimate, xerr=bars[0], yerr=bars[1], fmt="*", ms=11,
                  color=colour, capsize=3, lw=1, label=label)  # fmt: skip
