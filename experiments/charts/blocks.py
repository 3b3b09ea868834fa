"""What sections of the page are made of: tables and lines (`extract.table`), headings, and charts with their numbers.

Blocks hold data; templates make HTML of them and escape every text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.charts.grids import HEIGHT
from experiments.charts.specification import Chart, Row, Value, is_known, specification
from extract.table import Paragraph, Request, Table

AROUND = 70  # pixels above and below a chart's plane


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    title: str
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Figure:
    """A chart with its caption and its numbers as a table that opens; the page's script finds it by its name."""

    name: str
    caption: str
    chart: str  # Vega-Lite's JSON
    numbers: Table | None
    kind: ClassVar[str] = "figure"

    @property
    def height(self) -> int:
        """About how many pixels the drawn chart will take, so that the page does not jump when it is drawn."""
        spec = json.loads(self.chart)
        if isinstance(height := spec.get("height"), int | float):
            return int(height) + AROUND
        rows = {row["row"] for data in spec.get("datasets", {}).values() for row in data if "row" in row}
        return HEIGHT * len(rows) + AROUND


@dataclass(frozen=True)
class Figures:
    """Charts side by side where the page is wide enough."""

    figures: Sequence[Figure]
    kind: ClassVar[str] = "figures"


Block = str | Paragraph | Table | Request | Heading | Figure | Figures


@dataclass(frozen=True)
class Section:
    """A section of a page: its anchor, its entry in the contents, its title and its blocks."""

    name: str
    entry: str
    title: str
    blocks: Sequence[Block]


def figure(name: str, chart: Chart, caption: str, rows: Sequence[Row], columns: Mapping[str, str]) -> Figure:
    """Return a chart with its data as a table: fields with their headings, of which one in % has shares in percent."""
    cells = [[_cell(row.get(field), heading) for field, heading in columns.items()] for row in rows]
    numbers = Table("The numbers", list(columns.values()), cells, fold=True) if rows else None
    return Figure(name, caption, specification(chart), numbers)


def _cell(value: Value, heading: str) -> str:
    if not is_known(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{100 * value:.1f}" if heading.endswith("%") else f"{value:.3f}"
    return str(value)
