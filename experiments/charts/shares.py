"""Shares over a probability, with intervals: calibration of the dials, reliability of sampled answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from experiments.charts.specification import GREY, Chart, Row, data_of

SIZE = 260
TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
LEAST = 0.0005  # the smallest probability on an axis of log-odds; smaller ones are drawn there


def calibration(rows: Sequence[Row], colours: Mapping[str, str], *, x_title: str, y_title: str) -> Chart:
    """Draw a panel a series on an axis of log-odds, which spreads what crowds near 0 and 1.

    Args:
        rows: fields series, x (a probability), y, low, high (shares), n.
    """
    placed = [{**row, "at": log_odds(float(row["x"] or 0))} for row in rows]
    steps = [log_odds(LEAST) + i * (log_odds(1 - LEAST) - log_odds(LEAST)) / 60 for i in range(61)]
    perfect = [
        {"at": step, "y": 1 / (1 + math.exp(-step)), "series": name}
        for name in dict.fromkeys(row["series"] for row in rows)
        for step in steps
    ]
    named = " : ".join(f"abs(datum.value - {log_odds(p)}) < 0.01 ? '{p:.1%}'".replace(".0%", "%") for p in TICKS)
    axis = alt.Axis(values=[log_odds(p) for p in TICKS], labelExpr=f"{named} : ''", labelAngle=0, labelOverlap=False)
    domain = alt.Scale(domain=[log_odds(LEAST), log_odds(1 - LEAST)], nice=False, zero=False)
    x = alt.X("at:Q", title=x_title, axis=axis, scale=domain)
    line = (
        alt.Chart(data_of(perfect))
        .mark_line(color=GREY, strokeDash=[4, 4], clip=True)
        .encode(x=x, y=_share("y", y_title))
    )
    points = _points(placed, x, y_title, colours, legend=False)
    panels = [
        alt.layer(*(layer.transform_filter(alt.datum.series == name) for layer in (line, *points))).properties(
            width=SIZE, height=SIZE, title=str(name)
        )
        for name in dict.fromkeys(row["series"] for row in rows)
    ]
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def reliability(rows: Sequence[Row], colours: Mapping[str, str], *, x_title: str, y_title: str) -> Chart:
    """Draw all series in one panel over a linear axis, zoomed to the data, with the line of equal shares.

    Args:
        rows: fields series, x, y, low, high (shares), n.
    """
    ends = [value for row in rows for key in ("x", "low", "high") if isinstance(value := row[key], int | float)]
    low = math.floor(10 * min(ends, default=0.0)) / 10
    scale = alt.Scale(domain=[low, 1], zero=False)
    x = alt.X("x:Q", title=x_title, scale=scale, axis=alt.Axis(format=".0%", tickCount=6))
    diagonal = alt.Chart(data_of([{"x": low, "y": low}, {"x": 1, "y": 1}]))
    line = diagonal.mark_line(color=GREY, strokeDash=[4, 4]).encode(x=x, y=_share("y", y_title))
    return alt.layer(line, *_points(rows, x, y_title, colours)).properties(width=SIZE + 60, height=SIZE)


def log_odds(probability: float) -> float:
    """Return ln(p / (1 - p)), of probabilities no nearer to 0 and 1 than the axis is long."""
    held = min(max(probability, LEAST), 1 - LEAST)
    return round(math.log(held / (1 - held)), 6)


def _share(field: str, title: str) -> alt.Y:
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", tickCount=6))


def _points(
    rows: Sequence[Row], x: alt.X, y_title: str, colours: Mapping[str, str], *, legend: bool = True
) -> list[alt.Chart]:
    """Return the layers of intervals, points and their n."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    key = alt.Legend(title=None, orient="bottom", direction="vertical") if legend else None
    base = alt.Chart(data_of(rows)).encode(x=x, color=alt.Color("series:N", scale=scale, legend=key))
    shape = alt.Shape("series:N", scale=alt.Scale(domain=list(colours)), legend=key)
    tooltip = ["series:N", *(alt.Tooltip(f"{f}:Q", format=".1%") for f in ("x", "y", "low", "high")), "n:N"]
    return [
        base.mark_rule(strokeWidth=1.5).encode(_share("low", y_title), alt.Y2("high:Q")),
        base.mark_point(size=60, filled=True, opacity=1).encode(_share("y", y_title), shape=shape, tooltip=tooltip),
        base.mark_text(align="left", dx=7, dy=-8, fontSize=10).encode(_share("y", y_title), text="n:N"),
    ]
