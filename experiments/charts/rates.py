"""The rates before and with the dials, with 95 % intervals: of one run as bars, with its limits; of many as points."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import BLUE, GREEN, GREY, ORANGE, PINK, YELLOW, Chart, Row, data_of

X_TITLE = "% of test prompts; lines: 95 % intervals"
COLOURS = [GREY, BLUE, ORANGE, GREEN, YELLOW, PINK]  # of files or states, in their order
WIDTH, HEIGHT = 290, 46  # of the chart, and of each rate
PANEL, LINE = 200, 13  # of the width of a rate's panel, and of the height of each of a run's states


def rates_before_after(rows: Sequence[Row], title: str = "", x_title: str = X_TITLE) -> Chart:
    """Draw each rate's bars with their intervals; the axis ends at the largest upper limit.

    Args:
        x_title: of what the rates are shares.
        rows: fields rate, when, value, low, high (shares), n, limit (None where no limit is asked).
    """
    known = [row for row in rows if row["value"] is not None]
    states = list(dict.fromkeys(row["when"] for row in rows))
    limited = [row for row in known if row.get("limit") is not None]
    title_of_x = f"{x_title}; red: limit" if limited else x_title
    legend = alt.Legend(orient="top", symbolType="square") if len(states) > 1 else None
    scale = alt.Scale(domain=states, range=(COLOURS * len(states))[: len(states)])
    colour = alt.Color("when:N", title=None, sort=None, legend=legend, scale=scale)
    axis = alt.Axis(labelLimit=200, ticks=False, domain=False, labelPadding=8)
    y = alt.Y("rate:N", sort=None, title=None, axis=axis)
    x = alt.X(
        "value:Q", title=title_of_x, scale=alt.Scale(domainMin=0, nice=True), axis=alt.Axis(format=".0%", tickCount=6)
    )
    base = alt.Chart(data_of(known)).encode(
        y=y, yOffset=alt.YOffset("when:N", sort=None, scale=alt.Scale(domain=states))
    )
    tooltip = ["rate:N", "when:N", *(alt.Tooltip(f"{f}:Q", format=".1%") for f in ("value", "low", "high")), "n:N"]
    bars = base.mark_bar(opacity=0.75).encode(x=x, color=colour, tooltip=tooltip)
    ends = base.mark_tick(thickness=3, size=14, opacity=1).encode(x=x, color=colour, tooltip=tooltip)
    intervals = base.mark_rule(strokeWidth=1.5, color=GREY).encode(alt.X("low:Q", title=title_of_x), alt.X2("high:Q"))
    layers = [bars, intervals, ends]
    if limited:
        limits = alt.Chart(data_of([{"rate": row["rate"], "value": row["limit"]} for row in limited]))
        mark = limits.mark_tick(thickness=2, size=HEIGHT - 8, color=ORANGE)
        layers.append(mark.encode(y=y, x=x, tooltip=["rate:N", alt.Tooltip("value:Q", format=".0%", title="limit")]))
    n_rates = len({row["rate"] for row in known})
    return alt.layer(*layers).properties(
        width=WIDTH, height=HEIGHT * max(1, n_rates), **({"title": title} if title else {})
    )


def rates_by_run(rows: Sequence[Row]) -> Chart:
    """Draw a panel a rate, with a line a run: points with their intervals.

    Args:
        rows: fields run, rate, when, value, low, high (shares), n.
    """
    states, rates = list(dict.fromkeys(row["when"] for row in rows)), list(dict.fromkeys(row["rate"] for row in rows))
    scale = alt.Scale(domain=states, range=COLOURS[: len(states)])
    legend = alt.Legend(orient="bottom", symbolType="circle") if len(states) > 1 else None
    colour = alt.Color("when:N", title=None, sort=None, legend=legend, scale=scale)
    offset = alt.YOffset("when:N", sort=None, scale=alt.Scale(domain=states, paddingOuter=0.4))
    tooltip = [
        "run:N",
        "rate:N",
        "when:N",
        *(alt.Tooltip(f"{f}:Q", format=".1%") for f in ("value", "low", "high")),
        "n:N",
    ]
    scale_x, axis_x = alt.Scale(domain=[0, 1]), alt.Axis(format=".0%", tickCount=4)
    panels = []
    for i, rate in enumerate(rates):
        axis = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8) if i == 0 else None
        base = alt.Chart(data_of([row for row in rows if row["rate"] == rate])).encode(
            y=alt.Y("run:N", sort=None, title=None, axis=axis), yOffset=offset, color=colour
        )
        low = alt.X("low:Q", title=None, scale=scale_x, axis=axis_x)
        intervals = base.mark_rule(strokeWidth=1.5).encode(low, alt.X2("high:Q"))
        value = alt.X("value:Q", title=None, scale=scale_x, axis=axis_x)
        points = base.mark_point(filled=True, size=45, opacity=1).encode(value, tooltip=tooltip)
        panels.append(alt.layer(intervals, points).properties(width=PANEL, height=alt.Step(LINE), title=str(rate)))
    return alt.hconcat(*panels, spacing=18)
