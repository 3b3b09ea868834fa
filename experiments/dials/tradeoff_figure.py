"""Charts of the trade-off: rates of each policy on test prompts, without and with the dials."""

from __future__ import annotations

import altair as alt

from experiments.charts.specification import Chart, Row
from experiments.charts.tradeoff import tradeoff
from experiments.dials.results import SteerResult, When
from probes.statistics.intervals import Estimate
from scoring.rates import JointRates

PANELS = ("uncertain_mistaken", "missed_harm")
NAMES = {"two_dials": "two dials", "one_dial": "one dial"}
COUNTED_AS = {"uncertain_mistaken": "overconfidence", "missed_harm": "missed_harm"}  # a rate of the same prompts
MEANING = {
    "over_refusal": "over_refusal (% of benign)",
    "uncertain_mistaken": "uncertain_mistaken (% of uncertain)",
    "missed_harm": "missed_harm (% of harmful)",
}


def pareto(result: SteerResult, before: JointRates, after: JointRates) -> Chart:
    """Draw uncertain_mistaken and missed_harm over over_refusal: frontiers chosen off test, measured on test.

    Args:
        before, after: joint rates of the test prompts without dials and with them.
    """
    if result.hypervolume is None or result.frontier is None:
        raise ValueError("without dials there is no trade-off to draw")
    panels = [tradeoff_chart(result, before, after, risk) for risk in PANELS]
    return alt.hconcat(
        *panels, title="Pareto-optimal settings on the choice prompts, measured on test prompts; bars: 95 %"
    )


def tradeoff_chart(
    result: SteerResult, before: JointRates, after: JointRates, risk: str, *, live: bool = False
) -> Chart:
    """Draw one rate over over_refusal, with its n on each axis.

    Args:
        live: leave a place for the point that the page's sliders move.
    """
    n, of = before.of("over_refusal").n or 0, before.of(COUNTED_AS[risk]).n or 0
    return tradeoff(
        tradeoff_rows(result, before, after, risk),
        x_title=f"{MEANING['over_refusal']}, n = {n:,}",
        y_title=f"{MEANING[risk]}, n = {of:,}",
        live=live,
    )


def tradeoff_rows(result: SteerResult, before: JointRates, after: JointRates, risk: str) -> list[Row]:
    """Return the points of a panel that have both rates: frontiers, system lines, without dials, the dials as set."""
    rows: list[Row] = [
        {
            "kind": NAMES[policy],
            "name": f"{NAMES[policy]}, at " + ", ".join(f"{t:.3f}" for t in p.thresholds.values()),
            "x": x,
            "y": y,
        }
        for policy, settings in (result.frontier or {}).items()
        for p in settings
        if (x := p.test["over_refusal"]) is not None and (y := p.test[risk]) is not None
    ]
    marked: list[tuple[str, str, JointRates, When | None]] = [
        ("a system line", f"system line “{point.line[:200]}”", point.rates, None)
        for point in result.system_lines.points
    ]
    marked += [
        ("without dials", "without dials", before, "before"),
        ("the dials as set", "the dials as set", after, "after"),
    ]
    for kind, name, rates, when in marked:
        rows += _row(kind, name, rates.of("over_refusal"), result.on_axis(rates, risk, when))
    return rows


def _row(kind: str, name: str, over_refusal: Estimate, other: Estimate) -> list[Row]:
    """Return a point with the intervals it has; none where a rate has no judged completion."""
    if not over_refusal.known or not other.known:
        return []
    return [
        {
            "kind": kind,
            "name": name,
            "x": over_refusal.estimate,
            "x_low": over_refusal.low,
            "x_high": over_refusal.high,
            "y": other.estimate,
            "y_low": other.low,
            "y_high": other.high,
        }
    ]
