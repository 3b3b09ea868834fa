"""What is gained and lost along the strength of several interventions: a path each, from weak to strong."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import BLUE, GREEN, GREY, ORANGE, Chart, Row, data_of

SIZE = 320


def lowering(rows: Sequence[Row], *, x_title: str, y_title: str, limit: float) -> Chart:
    """Draw a path a way through its strengths, with 95 % intervals; both axes go from 0 to 1.

    Args:
        rows: fields way, strength, x, x_low, x_high, y, y_low, y_high (shares).
        limit: of y, marked by a dashed line: the margin above which a loss is not small.
    """
    ways = list(dict.fromkeys(row["way"] for row in rows))
    whole, axis = alt.Scale(domain=[0, 1]), alt.Axis(format=".0%", tickCount=6)
    x, y = alt.X("x:Q", title=x_title, scale=whole, axis=axis), alt.Y("y:Q", title=y_title, scale=whole, axis=axis)
    legend = alt.Legend(title=None, orient="bottom", labelLimit=420)
    colour = alt.Color("way:N", legend=legend, scale=alt.Scale(domain=ways, range=[ORANGE, BLUE, GREEN][: len(ways)]))
    base = alt.Chart(data_of(rows)).encode(color=colour)
    tooltip = [
        "way:N",
        "strength:Q",
        alt.Tooltip("x:Q", title=x_title, format=".1%"),
        alt.Tooltip("y:Q", title=y_title, format=".1%"),
    ]
    across = base.mark_rule(opacity=0.5).encode(alt.X("x_low:Q", title=x_title), alt.X2("x_high:Q"), y=y)
    along = base.mark_rule(opacity=0.5).encode(alt.Y("y_low:Q", title=y_title), alt.Y2("y_high:Q"), x=x)
    path = base.mark_line(strokeWidth=1.5).encode(x=x, y=y, order="strength:Q")
    points = base.mark_point(filled=True, opacity=1).encode(
        x=x, y=y, size=alt.Size("strength:Q", legend=None, scale=alt.Scale(range=[30, 110])), tooltip=tooltip
    )
    level = alt.Chart(data_of([{"value": limit}])).mark_rule(strokeDash=[4, 4], color=GREY).encode(y="value:Q")
    return alt.layer(level, across, along, path, points).properties(width=SIZE, height=SIZE)
