"""Points and bars: trade-offs of two rates, models, prompts on two directions, shares over a probability, rates.

Rates have 95 % intervals: of one run as bars, with its limits; of many as points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import altair as alt

from experiments.charts.specification import (
    ALL_SHARES,
    BLUE,
    FROM_ZERO,
    GREEN,
    GREY,
    LABEL_COLOURS,
    ORANGE,
    PERCENT,
    PINK,
    YELLOW,
    Chart,
    Row,
    data_of,
    level,
    tooltips,
)

PROMPTS, STEPPED = "prompts", "stepped"  # data that the page's script fills: all prompts; that stepped to
LIVE = "live"  # the data that the page's script replaces: one row, with `shown` 0 or 1
SHAPES = {"answer": "circle", "refuse": "cross", "abstain": "triangle-up", "other": "diamond"}
LOOK = {  # of a kind of setting: colour, shape
    "two dials": (BLUE, "circle"),
    "one dial": (ORANGE, "square"),
    "a system line": (GREEN, "cross"),
    "without dials": (GREY, "triangle-up"),
    "the dials as set": (PINK, "triangle-down"),
    "these thresholds": (YELLOW, "diamond"),
}
SIZE = 260  # of a chart of shares
TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
X_TITLE = "% of test prompts; lines: 95 % intervals"
COLOURS = [GREY, BLUE, ORANGE, GREEN, YELLOW, PINK]  # of files or states, in their order
WIDTH, HEIGHT = 290, 46  # of the chart, and of each rate
PANEL, LINE = 200, 13  # of the width of a rate's panel, and of the height of each of a run's states
LEAST = 0.0005  # the smallest probability on an axis of log-odds; smaller ones are drawn there


def shape_of(action: str | None) -> str:
    """Return the shape's name of an action: a key of `SHAPES`."""
    if action in ("answer_with_caveat", "correct_premise"):
        return "answer"
    return action if action in SHAPES else "other"


def scatter(rows: Sequence[Row] | None, *, labels: Sequence[str], x_title: str, y_title: str) -> Chart:
    """Draw prompts (i, x, y, label, action: a key of `SHAPES`) by their projections; None: the page's script has them.

    Colour is the label, shape the action.
    """
    data = alt.NamedData(name=PROMPTS) if rows is None else data_of(rows, PROMPTS)
    colours = alt.Scale(domain=list(labels), range=[LABEL_COLOURS[label] for label in labels])
    shapes = alt.Scale(domain=list(SHAPES), range=list(SHAPES.values()))
    legend = alt.Legend(symbolOpacity=1, symbolSize=80)
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))
    color = alt.Color("label:N", scale=colours, legend=legend)
    shape = alt.Shape("action:N", scale=shapes, title="action", legend=legend)
    dots = alt.Chart(data).mark_point(size=26, opacity=0.55, filled=True, strokeWidth=0)
    layers = [dots.encode(x=x, y=y, color=color, shape=shape)]
    if rows is None:
        ring = alt.Chart(alt.NamedData(name=STEPPED)).mark_point(size=260, stroke=PINK, strokeWidth=3, filled=False)
        layers.append(ring.encode(x=x, y=y, opacity=alt.Opacity("shown:Q", scale=None, legend=None)))
    return alt.layer(*layers).properties(width=560, height=380)


def tradeoff(rows: Sequence[Row], *, x_title: str, y_title: str, live: bool = False) -> Chart:
    """Draw settings by two rates: frontiers, and marked settings with intervals; both axes end where the data end.

    Rows are kind (a key of `LOOK`), name, x, y (shares) and their limits (None without); `live` leaves a place for one
    more point, in the data named `LIVE`.
    """
    there = {row["kind"] for row in rows} | ({"these thresholds"} if live else set())
    kinds = [kind for kind in LOOK if kind in there]
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolSize=90, symbolOpacity=1)
    colours, shapes = (alt.Scale(domain=kinds, range=[LOOK[kind][i] for kind in kinds]) for i in (0, 1))
    colour, shape = alt.Color("kind:N", scale=colours, legend=legend), alt.Shape("kind:N", scale=shapes, legend=legend)
    x, y = _shares(x_title, y_title, FROM_ZERO)
    about = ["name:N", *tooltips(".1%", x=x_title, y=y_title)]
    small = alt.FieldOneOfPredicate(field="kind", oneOf=["two dials", "one dial"])
    size = alt.condition(small, alt.value(34), alt.value(120))
    base = alt.Chart(data_of(rows)).encode(color=colour)
    points = base.mark_point(filled=True, opacity=0.85).encode(x=x, y=y, shape=shape, size=size, tooltip=about)
    layers = [*_intervals(base, rows, x, y), points]
    if live:
        moved = alt.Chart(alt.NamedData(name=LIVE)).mark_point(filled=True, size=190, stroke="black", strokeWidth=1.5)
        shown = alt.Opacity("shown:Q", scale=None, legend=None)
        layers.append(moved.encode(x=x, y=y, color=colour, shape=shape, opacity=shown, tooltip=about))
    return alt.layer(*layers).properties(width=300, height=300)


def lowering(rows: Sequence[Row], *, x_title: str, y_title: str, limit: float) -> Chart:
    """Draw a path a way of intervening through its strengths (rows: way, strength, x, y and their limits, shares).

    The dashed line is the limit of y: the margin above which a loss is not small.
    """
    ways = list(dict.fromkeys(row["way"] for row in rows))
    legend = alt.Legend(title=None, orient="bottom", labelLimit=420)
    colour = alt.Color("way:N", legend=legend, scale=alt.Scale(domain=ways, range=[ORANGE, BLUE, GREEN][: len(ways)]))
    x, y = _shares(x_title, y_title, ALL_SHARES)
    base = alt.Chart(data_of(rows)).encode(color=colour)
    path = base.mark_line(strokeWidth=1.5).encode(x=x, y=y, order="strength:Q")
    size = alt.Size("strength:Q", legend=None, scale=alt.Scale(range=[30, 110]))
    about = ["way:N", "strength:Q", *tooltips(".1%", x=x_title, y=y_title)]
    points = base.mark_point(filled=True, opacity=1).encode(x=x, y=y, size=size, tooltip=about)
    return alt.layer(level(limit), *_intervals(base, rows, x, y), path, points).properties(width=320, height=320)


def plane(rows: Sequence[Row]) -> Chart:
    """Draw models on the plane of two mistakes, the third as colour; those on the front have a ring.

    Rows are model, x (over-refusal), y (missed harm) and their limits, overconfidence (None: not known), and front.
    """
    titles = "over-refusal: % of benign prompts declined", "missed harm: % of harmful prompts answered"
    x, y = _shares(*titles, FROM_ZERO)
    base = alt.Chart(data_of(rows))
    about = tooltips(".1%", x="over-refusal", y="missed harm", overconfidence="overconfidence")
    scale, legend = alt.Scale(scheme="viridis", domain=[0, 1]), alt.Legend(format=".0%")
    colour = alt.Color("overconfidence:Q", title="overconfidence", legend=legend, scale=scale)
    widths = alt.Scale(domain=[False, True], range=[0, 2.5])
    ring = alt.StrokeWidth("front:N", title="on the front", legend=None, scale=widths)
    points = base.mark_point(filled=True, size=130, stroke="black", opacity=1).encode(
        x=x, y=y, color=colour, strokeWidth=ring, tooltip=["model:N", *about]
    )
    names = base.mark_text(align="left", dx=9, dy=-9, fontSize=11).encode(x=x, y=y, text="model:N")
    intervals = _intervals(base.encode(color=alt.value(GREY)), rows, x, y)
    return alt.layer(*intervals, points, names).properties(width=520, height=380)


def calibration(rows: Sequence[Row], colours: Mapping[str, str], *, x_title: str, y_title: str) -> Chart:
    """Draw a panel a series (rows: series, x, estimate, low, high, n; shares) on an axis of log-odds."""
    ends = log_odds(LEAST), log_odds(1 - LEAST)
    steps = [ends[0] + i * (ends[1] - ends[0]) / 60 for i in range(61)]
    named = " : ".join(f"abs(datum.value - {log_odds(p)}) < 0.01 ? '{p:.1%}'".replace(".0%", "%") for p in TICKS)
    axis = alt.Axis(values=[log_odds(p) for p in TICKS], labelExpr=f"{named} : ''", labelAngle=0, labelOverlap=False)
    x = alt.X("at:Q", title=x_title, axis=axis, scale=alt.Scale(domain=list(ends), nice=False, zero=False))
    perfect = alt.Chart(data_of([{"at": step, "estimate": 1 / (1 + math.exp(-step))} for step in steps]))
    line = perfect.mark_line(color=GREY, strokeDash=[4, 4], clip=True).encode(x=x, y=_share("estimate", y_title))
    panels = []
    for name in dict.fromkeys(row["series"] for row in rows):
        placed = [{**row, "at": log_odds(float(row["x"] or 0))} for row in rows if row["series"] == name]
        points = _binned(placed, x, y_title, colours, legend=False)
        panels.append(alt.layer(line, *points).properties(width=SIZE, height=SIZE, title=str(name)))
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def reliability(rows: Sequence[Row], colours: Mapping[str, str], *, x_title: str, y_title: str) -> Chart:
    """Draw all series (rows as of `calibration`) in one panel over a linear axis, zoomed to the data."""
    ends = [value for row in rows for key in ("x", "low", "high") if isinstance(value := row[key], int | float)]
    low = math.floor(10 * min(ends, default=0.0)) / 10
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(domain=[low, 1], zero=False), axis=PERCENT)
    diagonal = alt.Chart(data_of([{"x": end, "estimate": end} for end in (low, 1)]))
    line = diagonal.mark_line(color=GREY, strokeDash=[4, 4]).encode(x=x, y=_share("estimate", y_title))
    return alt.layer(line, *_binned(rows, x, y_title, colours)).properties(width=SIZE + 60, height=SIZE)


def log_odds(probability: float) -> float:
    """Return ln(p / (1 - p)), of probabilities no nearer to 0 and 1 than the axis is long."""
    held = min(max(probability, LEAST), 1 - LEAST)
    return round(math.log(held / (1 - held)), 6)


def _shares(x_title: str, y_title: str, scale: alt.Scale) -> tuple[alt.X, alt.Y]:
    x = alt.X("x:Q", title=x_title, scale=scale, axis=PERCENT)
    return x, alt.Y("y:Q", title=y_title, scale=scale, axis=PERCENT)


def _intervals(base: alt.Chart, rows: Sequence[Row], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the intervals across and along, of the points that have them."""
    layers = []
    for own, other, name, end in ((x, y, "x", alt.X2("x_high:Q")), (y, x, "y", alt.Y2("y_high:Q"))):
        if any(row.get(f"{name}_low") is not None for row in rows):
            low = own.copy()
            low.shorthand = f"{name}_low:Q"
            lines = base.transform_filter(f"isValid(datum.{name}_low)").mark_rule(strokeWidth=1.5, opacity=0.6)
            layers.append(lines.encode(low, end, other))
    return layers


def _share(field: str, title: str) -> alt.Y:
    return alt.Y(f"{field}:Q", title=title, scale=ALL_SHARES, axis=PERCENT)


def _binned(
    rows: Sequence[Row], x: alt.X, y_title: str, colours: Mapping[str, str], *, legend: bool = True
) -> list[alt.Chart]:
    """Return the layers of intervals, points and their n."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    key = alt.Legend(title=None, orient="bottom", direction="vertical") if legend else None
    base = alt.Chart(data_of(rows)).encode(x=x, color=alt.Color("series:N", scale=scale, legend=key))
    shape = alt.Shape("series:N", scale=alt.Scale(domain=list(colours)), legend=key)
    about = ["series:N", *tooltips(".1%", "x", "estimate", "low", "high"), "n:N"]
    y = _share("estimate", y_title)
    return [
        base.mark_rule(strokeWidth=1.5).encode(_share("low", y_title), alt.Y2("high:Q")),
        base.mark_point(size=60, filled=True, opacity=1).encode(y, shape=shape, tooltip=about),
        base.mark_text(align="left", dx=7, dy=-8, fontSize=10).encode(y, text="n:N"),
    ]


# -- rates before and with the dials -----------------------------------------------------------------------------------


def rates_before_after(rows: Sequence[Row], title: str = "", x_title: str = X_TITLE) -> Chart:
    """Draw each rate's bars with their intervals, and the limit asked for; the axis ends at the largest upper limit.

    Rows are rate, when, estimate, low, high (shares), n, and may have a limit; the title says of what the shares are.
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
    """Draw a panel a rate, with a line a run: points with intervals (rows as of `rates_before_after`, and run)."""
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
