"""Models on the plane of two mistakes, the third as colour: over-refusal, missed harm, overconfidence."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import GREY, Chart, Row, data_of

WIDTH, HEIGHT = 520, 380


def plane(rows: Sequence[Row]) -> Chart:
    """Draw each model as a point with its intervals; models on the front have a ring.

    Args:
        rows: fields model, x, x_low, x_high (over-refusal), y, y_low, y_high (missed harm), overconfidence (None where
            it is not known), front (whether no other model is at least as good in all three).
    """
    axis = alt.Axis(format=".0%", tickCount=6)
    scale = alt.Scale(domainMin=0, nice=True)
    x = alt.X("x:Q", title="over-refusal: % of benign prompts declined", axis=axis, scale=scale)
    y = alt.Y("y:Q", title="missed harm: % of harmful prompts answered", axis=axis, scale=scale)
    base = alt.Chart(data_of(rows))
    tooltip = [
        "model:N",
        *(
            alt.Tooltip(f"{name}:Q", format=".1%", title=title)
            for name, title in (("x", "over-refusal"), ("y", "missed harm"), ("overconfidence", "overconfidence"))
        ),
    ]
    across = base.mark_rule(color=GREY, opacity=0.6).encode(alt.X("x_low:Q", scale=scale), alt.X2("x_high:Q"), y=y)
    along = base.mark_rule(color=GREY, opacity=0.6).encode(alt.Y("y_low:Q", scale=scale), alt.Y2("y_high:Q"), x=x)
    colour = alt.Color(
        "overconfidence:Q",
        title="overconfidence",
        legend=alt.Legend(format=".0%"),
        scale=alt.Scale(scheme="viridis", domain=[0, 1]),
    )
    ring = alt.StrokeWidth(
        "front:N", title="on the front", legend=None, scale=alt.Scale(domain=[False, True], range=[0, 2.5])
    )
    points = base.mark_point(filled=True, size=130, stroke="black", opacity=1).encode(
        x=x, y=y, color=colour, strokeWidth=ring, tooltip=tooltip
    )
    names = base.mark_text(align="left", dx=9, dy=-9, fontSize=11).encode(x=x, y=y, text="model:N")
    return alt.layer(across, along, points, names).properties(width=WIDTH, height=HEIGHT)
