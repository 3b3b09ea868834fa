"""The scatter plot of all prompts on two directions: colour is the label, shape the action."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import LABEL_COLOURS, PINK, Chart, Row, data_of

WIDTH, HEIGHT = 560, 380
PROMPTS, STEPPED = (
    "prompts",
    "stepped",
)  # data that the page's script fills: every prompt; the one stepped to, with `shown` 0 or 1
SHAPES = {"answer": "circle", "refuse": "cross", "abstain": "triangle-up", "other": "diamond"}


def shape_of(action: str | None) -> str:
    """Return the shape's name of an action: a key of `SHAPES`."""
    if action in ("answer_with_caveat", "correct_premise"):
        return "answer"
    return action if action in SHAPES else "other"


def scatter(rows: Sequence[Row] | None, *, labels: Sequence[str], x_title: str, y_title: str) -> Chart:
    """Draw prompts by their projections.

    Args:
        rows: fields i, x, y, label, action (a key of `SHAPES`); None where the page's script fills them in.
    """
    data = alt.NamedData(name=PROMPTS) if rows is None else data_of(rows, PROMPTS)
    colours = alt.Scale(domain=list(labels), range=[LABEL_COLOURS[label] for label in labels])
    shapes = alt.Scale(domain=list(SHAPES), range=list(SHAPES.values()))
    legend = alt.Legend(symbolOpacity=1, symbolSize=80)
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))
    points = (
        alt.Chart(data)
        .mark_point(size=26, opacity=0.55, filled=True, strokeWidth=0)
        .encode(
            x=x,
            y=y,
            color=alt.Color("label:N", scale=colours, legend=legend),
            shape=alt.Shape("action:N", scale=shapes, title="action", legend=legend),
        )
    )
    if rows is not None:
        return points.properties(width=WIDTH, height=HEIGHT)
    ring = alt.Chart(alt.NamedData(name=STEPPED)).mark_point(size=260, stroke=PINK, strokeWidth=3, filled=False)
    shown = alt.Opacity("shown:Q", scale=None, legend=None)
    return alt.layer(points, ring.encode(x=x, y=y, opacity=shown)).properties(width=WIDTH, height=HEIGHT)
