"""Charts of the dials: the trade-off of two rates on test prompts, and the calibration of what each dial reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import altair as alt
import numpy as np

from experiments.charts.blocks import Figure, figure
from experiments.charts.points import calibration, tradeoff
from experiments.charts.specification import DIAL_COLOURS, Chart, Row, fields
from experiments.dials.results import SteerResult, When
from experiments.dials.surface import COUNTED
from scoring.rates import JointRates, grouped_rate

PANELS = ("uncertain_mistaken", "missed_harm")
NAMES = {"two_dials": "two dials", "one_dial": "one dial"}
EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0)  # closer where dials read most prompts
LABEL = {"normative": "harmful", "epistemic": "uncertain"}  # the prompts that each dial declines


# -- trade-off ---------------------------------------------------------------------------------------------------------


def pareto(result: SteerResult, before: JointRates, after: JointRates) -> Chart:
    """Draw uncertain_mistaken and missed_harm over over_refusal: frontiers chosen off test, measured on test.

    Args:
        before, after: joint rates of the test prompts without dials and with them.
    """
    if result.hypervolume is None or result.frontier is None:
        raise ValueError("without dials there is no trade-off to draw")
    title = "Pareto-optimal settings on the choice prompts, measured on test prompts; bars: 95 %"
    return alt.hconcat(*(tradeoff_chart(result, before, after, risk) for risk in PANELS), title=title)


def tradeoff_figure(result: SteerResult, before: JointRates, after: JointRates, risk: str) -> Figure:
    """Return a panel of the trade-off with a place for the point that the page's sliders move, and its numbers."""
    caption = f"{_axis(risk)} against over_refusal on test prompts; frontiers chosen on the choice prompts; lines: 95 %"
    columns = {"name": "setting"}
    for axis, name in (("x", "over_refusal"), ("y", risk)):
        columns |= {axis: f"{name}, %", f"{axis}_low": "from, %", f"{axis}_high": "to, %"}
    chart, rows = tradeoff_chart(result, before, after, risk, live=True), tradeoff_rows(result, before, after, risk)
    return figure(f"tradeoff_{risk}", chart, caption, rows, columns)


def tradeoff_chart(
    result: SteerResult, before: JointRates, after: JointRates, risk: str, *, live: bool = False
) -> Chart:
    """Draw one rate over over_refusal, with its n on each axis.

    Args:
        live: leave a place for the point that the page's sliders move.
    """
    counted = "overconfidence" if risk == "uncertain_mistaken" else risk  # a rate of the same prompts
    n = {"over_refusal": before.of("over_refusal").n or 0, risk: before.of(counted).n or 0}
    x_title, y_title = (f"{_axis(name)}, n = {n[name]:,}" for name in ("over_refusal", risk))
    return tradeoff(tradeoff_rows(result, before, after, risk), x_title=x_title, y_title=y_title, live=live)


def _axis(name: str) -> str:
    return f"{name} (% of {COUNTED[name][0]})"


def tradeoff_rows(result: SteerResult, before: JointRates, after: JointRates, risk: str) -> list[Row]:
    """Return the points of a panel that have both rates: frontiers, system lines, without dials, the dials as set."""
    rows: list[Row] = []
    for policy, settings in (result.frontier or {}).items():
        for point in settings:
            x, y = point.test["over_refusal"], point.test[risk]
            name = f"{NAMES[policy]}, at " + ", ".join(f"{tau:.3f}" for tau in point.thresholds.values())
            if x is not None and y is not None:
                rows.append({"kind": NAMES[policy], "name": name, "x": x, "y": y})
    marked: list[tuple[str, str, JointRates, When | None]] = [
        *(("a system line", f"system line “{p.line[:200]}”", p.rates, None) for p in result.system_lines.points),
        ("without dials", "without dials", before, "before"),
        ("the dials as set", "the dials as set", after, "after"),
    ]
    for kind, name, rates, when in marked:
        x_rate, y_rate = rates.of("over_refusal"), result.on_axis(rates, risk, when)
        if x_rate.known and y_rate.known:
            rows.append({"kind": kind, "name": name, **fields(x_rate, "x"), **fields(y_rate, "y")})
    return rows


# -- calibration -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DialReadings:
    """The probabilities that one dial reads for the test prompts, with their labels."""

    probability: np.ndarray  # (n,)
    declining: np.ndarray  # (n,) bool: the prompt has the label that the dial declines
    groups: np.ndarray  # (n,) int


def calibration_figure(kind: str, read: DialReadings) -> Figure:
    """Return the calibration of one dial with its numbers."""
    caption = (
        f"Share of {LABEL[kind]} prompts among test prompts by the probability that the {kind} dial reads; n beside "
        "each point; lines: 95 %; dashed: perfect calibration"
    )
    columns = {"bin": "probability", "estimate": "share, %", "low": "from, %", "high": "to, %", "n": "n"}
    return figure(f"calibration_{kind}", calibration_chart({kind: read}), caption, calibration_points(read), columns)


def calibration_chart(reads: Mapping[str, DialReadings]) -> Chart:
    """Draw a panel a dial: the share of prompts with its label in each bin, with 95 % intervals over groups."""
    names = {
        kind: f"{kind} dial: {LABEL[kind]} (n = {len(read.probability)} test prompts)" for kind, read in reads.items()
    }
    rows = [{"series": names[kind], **point} for kind, read in reads.items() for point in calibration_points(read)]
    colours = {name: DIAL_COLOURS[kind] for kind, name in names.items()}
    x_title, y_title = "probability that the dial reads (log-odds scale)", "share of prompts with the dial's label"
    return calibration(rows, colours, x_title=x_title, y_title=y_title)


def calibration_points(read: DialReadings) -> list[Row]:
    """Return a point for each bin of `EDGES` that holds prompts: its mean probability x, the share, its limits, n."""
    place, points = np.clip(np.digitize(read.probability, EDGES) - 1, 0, len(EDGES) - 2), list[Row]()
    for bin_ in np.unique(place):
        inside = place == bin_
        share = fields(grouped_rate(read.declining[inside], read.groups[inside]))
        mean = float(read.probability[inside].mean())
        points.append({"bin": f"{EDGES[bin_]:g} to {EDGES[bin_ + 1]:g}", "x": mean, **share})
    return points
