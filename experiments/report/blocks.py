"""What sections of the page are made of: tables, lines of text, charts with their numbers, quoted requests.

Blocks hold data; templates make HTML of them and escape every text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.charts.heat_map import HEIGHT
from experiments.charts.specification import Chart, Row, Value, is_known, specification

AROUND = 70  # pixels above and below a chart's plane


@dataclass(frozen=True)
class Quoted:
    """A prompt in a cell of a table; a harmful one is closed until the reader opens it."""

    label: str
    text: str


Cell = str | Quoted


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its header.

    A fold is closed until the reader opens it, under its caption.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    fold: bool = False
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Lines:
    """Paragraphs of the CSS class `style`."""

    lines: Sequence[str]
    style: str = ""
    kind: ClassVar[str] = "lines"


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    title: str
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Figure:
    """A chart with its caption and its numbers as a table that opens.

    `name` is how the page's script finds it.
    """

    name: str
    caption: str
    chart: str  # Vega-Lite's JSON
    numbers: Table | None
    kind: ClassVar[str] = "figure"

    @property
    def height(self) -> int:
        """About how many pixels the drawn chart will take, so that the page does not jump when it is drawn."""
        return drawn_height(self.chart)


@dataclass(frozen=True)
class Figures:
    """Charts side by side where the page is wide enough."""

    figures: Sequence[Figure]
    kind: ClassVar[str] = "figures"


@dataclass(frozen=True)
class Request:
    """A request with the score of each word (None where it is not notable) and how many words are left out."""

    label: str
    words: Sequence[tuple[str, float | None]]
    left_out: int = 0


@dataclass(frozen=True)
class Requests:
    """Requests with the words that matter marked."""

    requests: Sequence[Request]
    kind: ClassVar[str] = "requests"


Block = Table | Lines | Heading | Figure | Figures | Requests


@dataclass(frozen=True)
class Section:
    """A section of a run's page: its anchor, its entry in the contents, its title and its blocks."""

    name: str
    entry: str
    title: str
    blocks: Sequence[Block]


def figure(name: str, chart: Chart, caption: str, rows: Sequence[Row], columns: Mapping[str, str]) -> Figure:
    """Return a chart with its numbers.

    Args:
        rows: the data of the chart.
        columns: the fields of the table, with their headings; a heading that ends in % has shares in percent.
    """
    cells = [[_cell(row.get(field), heading) for field, heading in columns.items()] for row in rows]
    numbers = Table(list(columns.values()), cells, "The numbers", fold=True) if rows else None
    return Figure(name, caption, specification(chart), numbers)


def drawn_height(chart: str) -> int:
    """Return about how many pixels high a chart is with its axis and legend, from its specification."""
    spec = json.loads(chart)
    height = spec.get("height")
    if isinstance(height, int | float):
        return int(height) + AROUND
    rows = {row["row"] for data in spec.get("datasets", {}).values() for row in data if "row" in row}
    return HEIGHT * len(rows) + AROUND


def _cell(value: Value, heading: str) -> str:
    if not is_known(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{100 * value:.1f}" if heading.endswith("%") else f"{value:.3f}"
    return str(value)
