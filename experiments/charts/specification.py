"""What all charts share: rows of data, colours that colour-blind readers tell apart, and files as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

import altair as alt
import vl_convert

from probes.statistics.intervals import Estimate

Value = str | float | bool | None
Row = Mapping[str, Value]
Chart = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.FacetChart

BLUE, ORANGE, GREEN, YELLOW, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#7F7F7F"
# Okabe & Ito's palette, and a grey that is seen on white and on black
LABEL_COLOURS = {"benign": BLUE, "harmful": ORANGE, "uncertain": GREEN, "dual_use": YELLOW}
DIAL_COLOURS = {"normative": ORANGE, "epistemic": GREEN}
_LARGE, _SMALL = {"titleFontSize": 12, "titleFontWeight": "normal"}, {"labelFontSize": 11}
STYLE = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": _LARGE | _SMALL | {"gridOpacity": 0.35, "gridColor": GREY, "labelFlush": False},
    "legend": _LARGE | _SMALL | {"labelLimit": 420, "titleLimit": 420, "symbolBaseFillColor": GREY},
    "title": {"fontSize": 13, "fontWeight": "normal", "anchor": "start", "limit": 1200},
    "concat": {"spacing": 30},
}
PNG_SCALE = 1.5
PERCENT = alt.Axis(format=".0%", tickCount=6)
FROM_ZERO, ALL_SHARES = alt.Scale(domainMin=0, nice=True), alt.Scale(domain=[0, 1])


def data_of(rows: Sequence[Row], name: str = "") -> alt.InlineData:
    """Return rows, any number of them, as the data of a chart; by its name the page's script finds and changes it."""
    values = [{name: value if is_known(value) else None for name, value in row.items()} for row in rows]
    return alt.InlineData(values=values, name=name) if name else alt.InlineData(values=values)


def is_known(value: Value) -> bool:
    """Return whether a value is there: neither None nor a number that is not finite."""
    return value is not None and (not isinstance(value, float) or isfinite(value))


def fields(number: Estimate, name: str = "") -> Row:
    """Return a number as fields of a row: `estimate, low, high, n`, or with a name `x, x_low, x_high`."""
    ends = {"estimate": number.estimate, "low": number.low, "high": number.high}
    known = {end: value if is_known(value) else None for end, value in ends.items()}
    if not name:
        return known | {"n": number.n}
    return {name: known["estimate"], f"{name}_low": known["low"], f"{name}_high": known["high"]}


def level(value: float, field: str = "y") -> alt.Chart:
    """Return a dashed line at a value of the vertical axis."""
    return alt.Chart(data_of([{"value": value}])).mark_rule(strokeDash=[4, 4], color=GREY).encode(y="value:Q")


def tooltips(number: str, *names: str, **titles: str) -> list[alt.Tooltip]:
    """Return tooltips of fields in d3's format, some of them under another title."""
    return [
        alt.Tooltip(f"{name}:Q", format=number, title=title)
        for name, title in (dict.fromkeys(names, "") | titles).items()
    ]


def specification(chart: Chart, background: str = "transparent") -> str:
    """Return a chart as Vega-Lite's JSON, in the style of all charts."""
    made = chart.to_dict(validate=False)  # altair has validated each part as it was made
    made["config"] = STYLE | {"background": background}  # its own `configure_` copies all data for each setting
    return json.dumps(made, separators=(",", ":"), allow_nan=False)


def save(chart: Chart, path: Path) -> None:
    """Write a chart as PNG and, under the same name, as SVG; both on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = specification(chart, "white")
    path.write_bytes(vl_convert.vegalite_to_png(written, scale=PNG_SCALE))
    path.with_suffix(".svg").write_text(vl_convert.vegalite_to_svg(written), encoding="utf-8")
