"""Values over layers: heat maps with an interval in each cell, and lines of points with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from experiments.charts.specification import BLUE, GREEN, ORANGE, YELLOW, Chart, Row, data_of, level, tooltips

WIDE, NARROW = 50, 18  # pixels a column: with its number written in it, and without
MOST_WRITTEN = 14  # columns with numbers written in them
HEIGHT = 34
LINES = "split(datum.label, ', ')"  # a label in several lines
INK = "luminance(scale('color', datum.estimate)) > 0.179"  # where black contrasts more than white (WCAG 2)


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
    """Draw one value a cell, framed where it is chosen; where columns are few, each with its number and 95 % interval.

    Rows are column, row, estimate, low, high (None without), n, and may be chosen, in the order of the axes, which have
    `columns` and `lines` as titles. `unit` and `domain` are of the colour scale; `number` is d3's format of a value.
    What rows have as `small` is written in place of the interval, which is then read by pointing.
    """
    written = len({row["column"] for row in rows}) <= MOST_WRITTEN
    axis = alt.Axis(labelAngle=0, labelLimit=column_width, labelExpr=LINES)
    base = alt.Chart(data_of([{**row, "interval": _interval(row, number)} for row in rows])).encode(
        x=alt.X("column:N", sort=None, title=columns, axis=axis),
        y=alt.Y("row:N", sort=None, title=lines, axis=alt.Axis(labelLimit=260)),
    )
    scale = alt.Scale(domain=list(domain), scheme="cividis", clamp=True)
    named = {"column:N": columns or "column", "row:N": lines or "row", "interval:N": "95 %", "n:N": "n"}
    about = [alt.Tooltip(field, title=name) for field, name in named.items()]
    cells = base.mark_rect().encode(
        color=alt.Color("estimate:Q", scale=scale, title=unit, legend=alt.Legend(format=number, gradientLength=90)),
        tooltip=[*about[:2], *tooltips(number, estimate=unit), *about[2:]],
    )
    layers: list[alt.Chart] = [cells]
    if written:
        ink = alt.condition(INK, alt.value("black"), alt.value("white"))
        value = alt.Text("estimate:Q", format=number)
        small = "small:N" if any("small" in row for row in rows) else "interval:N"
        layers += [
            base.mark_text(dy=-6, fontSize=12).encode(text=value, color=ink),
            base.mark_text(dy=8, fontSize=9).encode(text=small, color=ink),
        ]
    if any(row.get("chosen") for row in rows):
        chosen = base.transform_filter("datum.chosen === true")
        layers.append(chosen.mark_rect(fillOpacity=0, stroke=ORANGE, strokeWidth=3, strokeOpacity=1))
    step = alt.Step(column_width if written else NARROW)
    return alt.layer(*layers).properties(width=step, height=alt.Step(HEIGHT), title=title)


def _interval(row: Row, number: str) -> str:
    low, high = row.get("low"), row.get("high")
    return f"{low:{number}}\u2013{high:{number}}" if isinstance(low, float) and isinstance(high, float) else ""


def by_layer(
    rows: Sequence[Row],
    *,
    y_title: str,
    reference: float | None = 0.0,
    title: str = "",
    number: str = ".2f",
    x_title: str = "layer",
) -> Chart:
    """Draw a line a series over layers (rows: layer, series, estimate, low, high, n); dashed: the reference.

    With another title of x, `layer` is a name of what stands there, in the order of the rows.
    """
    names = list(dict.fromkeys(row["series"] for row in rows))
    colours = alt.Scale(domain=names, range=[ORANGE, BLUE, GREEN, YELLOW][: len(names)])
    legend = alt.Legend(title=None, orient="top", labelLimit=420) if len(names) > 1 else None
    base = alt.Chart(data_of(rows)).encode(
        x=alt.X("layer:O", title=x_title, sort=None, axis=alt.Axis(labelAngle=0 if x_title == "layer" else -40)),
        color=alt.Color("series:N", scale=colours, legend=legend),
        xOffset=alt.XOffset("series:N", scale=alt.Scale(type="point", padding=4)),  # near the tick, side by side
    )
    y = alt.Y("estimate:Q", title=y_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=7, format=number))
    about = [alt.Tooltip("layer:O", title=x_title), "series:N", *tooltips(number, "estimate", "low", "high"), "n:N"]
    layers = [] if reference is None else [level(reference)]
    if any(row["low"] is not None for row in rows):
        known = base.transform_filter("isValid(datum.low)")
        layers.append(known.mark_rule(strokeWidth=1.5).encode(alt.Y("low:Q", title=y_title), alt.Y2("high:Q")))
    layers.append(base.mark_line(strokeWidth=1.5).encode(y=y))
    layers.append(base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=about))
    return alt.layer(*layers).properties(width=420, height=220, title=title)
