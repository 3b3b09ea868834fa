"""Heat maps: a number at each place of a grid, with its interval, a colour bar, and a frame round chosen places."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import ORANGE, Chart, Row, data_of

WIDE, NARROW = 50, 18  # pixels a column: with its number written in it, and without
MOST_WRITTEN = 14  # columns with numbers written in them
HEIGHT = 34
LINES = "split(datum.label, ', ')"  # a label in several lines
INK = "luminance(scale('color', datum.value)) > 0.179"  # where black contrasts more than white (WCAG 2)


def heat_map(
    rows: Sequence[Row],
    *,
    title: str,
    columns: str,
    lines: str,
    unit: str,
    domain: tuple[float, float],
    number: str = ".2f",
    column_width: int = WIDE,
) -> Chart:
    """Draw one value a cell; where columns are few, each with its number and 95 % interval.

    Args:
        rows: fields column, row, value, low, high (None without), n; optionally chosen. In the order of the axes.
        columns, lines: what the columns and the rows of cells are, as the axes' titles.
        unit: of the values, beside the colour bar.
        domain: values of both ends of the colour scale.
        number: the format of a value, as d3 writes it.
    """
    width = len({row["column"] for row in rows})
    written = width <= MOST_WRITTEN
    step = column_width if written else NARROW
    base = alt.Chart(data_of([_with_interval(row, number) for row in rows])).encode(
        x=alt.X(
            "column:N", sort=None, title=columns, axis=alt.Axis(labelAngle=0, labelLimit=column_width, labelExpr=LINES)
        ),
        y=alt.Y("row:N", sort=None, title=lines, axis=alt.Axis(labelLimit=260)),
    )
    scale = alt.Scale(domain=list(domain), scheme="cividis", clamp=True)
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", scale=scale, title=unit, legend=alt.Legend(format=number, gradientLength=90)),
        tooltip=[
            alt.Tooltip("column:N", title=columns or "column"),
            alt.Tooltip("row:N", title=lines or "row"),
            alt.Tooltip("value:Q", title=unit, format=number),
            alt.Tooltip("interval:N", title="95 %"),
            alt.Tooltip("n:N"),
        ],
    )
    layers: list[alt.Chart] = [cells]
    if written:
        ink = alt.condition(INK, alt.value("black"), alt.value("white"))
        number_of = alt.Text("value:Q", format=number)
        layers += [
            base.mark_text(dy=-6, fontSize=12).encode(text=number_of, color=ink),
            base.mark_text(dy=8, fontSize=9).encode(text="interval:N", color=ink),
        ]
    chosen = base.transform_filter("datum.chosen === true")
    frame = chosen.mark_rect(fillOpacity=0, stroke=ORANGE, strokeWidth=3, strokeOpacity=1)
    if any(row.get("chosen") for row in rows):
        layers.append(frame)
    return alt.layer(*layers).properties(width=alt.Step(step), height=alt.Step(HEIGHT), title=title)


def _with_interval(row: Row, number: str) -> Row:
    low, high = row.get("low"), row.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return {**row, "interval": ""}
    return {**row, "interval": f"{low:{number}}\u2013{high:{number}}"}
