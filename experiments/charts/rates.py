"""The rates before and with the dials, with 95 % intervals: of one run as bars, with its limits; of many as points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt

from experiments.charts.specification import (
    ALL_SHARES,
    BLUE,
    FROM_ZERO,
    GREEN,
    GREY,
    ORANGE,
    PERCENT,
    PINK,
    YELLOW,
    Chart,
    Row,
    data_of,
    tooltips,
)

X_TITLE = "% of test prompts; lines: 95 % intervals"
COLOURS = [GREY, BLUE, ORANGE, GREEN, YELLOW, PINK]  # of files or states, in their order
WIDTH, HEIGHT = 290, 46  # of the chart, and of each rate
PANEL, LINE = 200, 13  # of the width of a rate's panel, and of the height of each of a run's states


def rates_before_after(rows: Sequence[Row], title: str = "", x_title: str = X_TITLE) -> Chart:
    """Draw each rate's bars with their intervals; the axis ends at the largest upper limit.

    Args:
        rows: fields rate, when, estimate, low, high (shares), n; optionally the limit that is asked for.
        x_title: of what the rates are shares.
    """
    known = [row for row in rows if row["estimate"] is not None]
    limited = [row for row in known if row.get("limit") is not None]
    title_of_x = f"{x_title}; red: limit" if limited else x_title
    axis = alt.Axis(labelLimit=200, ticks=False, domain=False, labelPadding=8)
    y = alt.Y("rate:N", sort=None, title=None, axis=axis)
    x = alt.X("estimate:Q", title=title_of_x, scale=FROM_ZERO, axis=PERCENT)
    states = _states(rows)
    colour, offset = _colour(states, "top", "square"), alt.Scale(domain=states)
    base = alt.Chart(data_of(known)).encode(y=y, yOffset=alt.YOffset("when:N", sort=None, scale=offset))
    about = ["rate:N", "when:N", *tooltips(".1%", "estimate", "low", "high"), "n:N"]
    layers = [
        base.mark_bar(opacity=0.75).encode(x=x, color=colour, tooltip=about),
        base.mark_rule(strokeWidth=1.5, color=GREY).encode(alt.X("low:Q", title=title_of_x), alt.X2("high:Q")),
        base.mark_tick(thickness=3, size=14, opacity=1).encode(x=x, color=colour, tooltip=about),
    ]
    if limited:
        limits = alt.Chart(data_of([{"rate": row["rate"], "estimate": row["limit"]} for row in limited]))
        mark = limits.mark_tick(thickness=2, size=HEIGHT - 8, color=ORANGE)
        layers.append(mark.encode(y=y, x=x, tooltip=["rate:N", *tooltips(".0%", estimate="limit")]))
    height = HEIGHT * max(1, len({row["rate"] for row in known}))
    return alt.layer(*layers).properties(width=WIDTH, height=height, **({"title": title} if title else {}))


def rates_by_run(rows: Sequence[Row]) -> Chart:
    """Draw a panel a rate, with a line a run: points with their intervals.

    Args:
        rows: fields run, rate, when, estimate, low, high (shares), n.
    """
    states = _states(rows)
    offset = alt.YOffset("when:N", sort=None, scale=alt.Scale(domain=states, paddingOuter=0.4))
    about = ["run:N", "rate:N", "when:N", *tooltips(".1%", "estimate", "low", "high"), "n:N"]
    x_axis = alt.Axis(format=".0%", tickCount=4)
    panels = []
    for i, rate in enumerate(dict.fromkeys(row["rate"] for row in rows)):
        axis = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8) if i == 0 else None
        base = alt.Chart(data_of([row for row in rows if row["rate"] == rate])).encode(
            y=alt.Y("run:N", sort=None, title=None, axis=axis),
            yOffset=offset,
            color=_colour(states, "bottom", "circle"),
        )
        low, value = (alt.X(f"{end}:Q", title=None, scale=ALL_SHARES, axis=x_axis) for end in ("low", "estimate"))
        intervals = base.mark_rule(strokeWidth=1.5).encode(low, alt.X2("high:Q"))
        points = base.mark_point(filled=True, size=45, opacity=1).encode(value, tooltip=about)
        panels.append(alt.layer(intervals, points).properties(width=PANEL, height=alt.Step(LINE), title=str(rate)))
    return alt.hconcat(*panels, spacing=18)


def _states(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["when"]) for row in rows))


def _colour(states: Sequence[str], orient: Literal["top", "bottom"], symbol: str) -> alt.Color:
    scale = alt.Scale(domain=list(states), range=(COLOURS * len(states))[: len(states)])
    legend = alt.Legend(orient=orient, symbolType=symbol) if len(states) > 1 else None
    return alt.Color("when:N", title=None, sort=None, legend=legend, scale=scale)
