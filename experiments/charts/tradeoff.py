"""The trade-off of two rates: frontiers of policies, marked settings with intervals, and one that the page moves."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import BLUE, GREEN, GREY, ORANGE, PINK, YELLOW, Chart, Row, data_of

SIZE = 300
LIVE = "live"  # the data that the page's script replaces: one row, with `shown` 0 or 1
LOOK = {  # name in the legend: colour, shape
    "two dials": (BLUE, "circle"),
    "one dial": (ORANGE, "square"),
    "a system line": (GREEN, "cross"),
    "without dials": (GREY, "triangle-up"),
    "the dials as set": (PINK, "triangle-down"),
    "these thresholds": (YELLOW, "diamond"),
}
SMALL = ("two dials", "one dial")


def tradeoff(rows: Sequence[Row], *, x_title: str, y_title: str, live: bool = False) -> Chart:
    """Draw points of two rates; both axes end where the data end.

    Args:
        rows: fields kind (a key of `LOOK`), name, x, y (shares), x_low, x_high, y_low, y_high (None without).
        live: leave a place for one more point, in the data named `LIVE`.
    """
    kinds = [kind for kind in LOOK if kind in {row["kind"] for row in rows} or (live and kind == "these thresholds")]
    colours = alt.Scale(domain=kinds, range=[LOOK[kind][0] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[LOOK[kind][1] for kind in kinds])
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolSize=90, symbolOpacity=1)
    colour = alt.Color("kind:N", scale=colours, legend=legend)
    shape = alt.Shape("kind:N", scale=shapes, legend=legend)
    axis = alt.Axis(format=".0%", tickCount=6)
    from_zero = alt.Scale(domainMin=0, nice=True)
    x = alt.X("x:Q", title=x_title, axis=axis, scale=from_zero)
    y = alt.Y("y:Q", title=y_title, axis=axis, scale=from_zero)
    tooltip = ["name:N", *(alt.Tooltip(f"{f}:Q", format=".1%", title=t) for f, t in (("x", x_title), ("y", y_title)))]
    base = alt.Chart(data_of(rows)).encode(color=colour)
    with_ends = []
    if any(row.get("x_low") is not None for row in rows):
        rule = base.transform_filter("isValid(datum.x_low)").mark_rule(strokeWidth=1.5)
        with_ends.append(rule.encode(alt.X("x_low:Q", title=x_title), alt.X2("x_high:Q"), y=y))
    if any(row.get("y_low") is not None for row in rows):
        rule = base.transform_filter("isValid(datum.y_low)").mark_rule(strokeWidth=1.5)
        with_ends.append(rule.encode(alt.Y("y_low:Q", title=y_title), alt.Y2("y_high:Q"), x=x))
    size = alt.condition(alt.FieldOneOfPredicate(field="kind", oneOf=list(SMALL)), alt.value(34), alt.value(120))
    points = base.mark_point(filled=True, opacity=0.85).encode(x=x, y=y, shape=shape, size=size, tooltip=tooltip)
    layers = [*with_ends, points]
    if live:
        moved = alt.Chart(alt.NamedData(name=LIVE)).mark_point(filled=True, size=190, stroke="black", strokeWidth=1.5)
        shown = alt.Opacity("shown:Q", scale=None, legend=None)
        layers.append(moved.encode(x=x, y=y, color=colour, shape=shape, opacity=shown, tooltip=tooltip))
    return alt.layer(*layers).properties(width=SIZE, height=SIZE)
