"""Values over the layers of a model: lines with points and 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import BLUE, GREEN, GREY, ORANGE, YELLOW, Chart, Row, data_of

WIDTH, HEIGHT = 420, 220


def by_layer(
    rows: Sequence[Row], *, y_title: str, reference: float | None = 0.0, title: str = "", number: str = ".2f"
) -> Chart:
    """Draw a line a series over layers; the axis ends where the data end.

    Args:
        rows: fields layer, series, value, low, high (None without), n.
        reference: a value marked by a dashed line.
    """
    names = list(dict.fromkeys(row["series"] for row in rows))
    colours = alt.Scale(domain=names, range=[ORANGE, BLUE, GREEN, YELLOW][: len(names)])
    legend = alt.Legend(title=None, orient="top", labelLimit=420) if len(names) > 1 else None
    base = alt.Chart(data_of(rows)).encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("series:N", scale=colours, legend=legend),
        xOffset=alt.XOffset("series:N", scale=alt.Scale(type="point", padding=4)),  # near the tick, side by side
    )
    y = alt.Y("value:Q", title=y_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=7, format=number))
    tooltip = ["layer:O", "series:N", *(alt.Tooltip(f"{f}:Q", format=number) for f in ("value", "low", "high")), "n:N"]
    layers = [
        base.mark_line(strokeWidth=1.5).encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tooltip),
    ]
    if any(row["low"] is not None for row in rows):
        known = base.transform_filter("isValid(datum.low)")
        layers.insert(0, known.mark_rule(strokeWidth=1.5).encode(alt.Y("low:Q", title=y_title), alt.Y2("high:Q")))
    if reference is not None:
        level = alt.Chart(data_of([{"value": reference}])).mark_rule(strokeDash=[4, 4], color=GREY)
        layers.insert(0, level.encode(y=y))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=title)
