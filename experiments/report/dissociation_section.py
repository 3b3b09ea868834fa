"""The dissociation section of the report: tables, and whether the two directions are independent."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from experiments.dissociation.results import Dissociation
from experiments.dissociation.text import dependence_lines, tables
from experiments.rank.text import rank_lines

HtmlTable = Callable[[list[str], list[list[str]]], str]


def dissociation_section(found: Dissociation, table: HtmlTable) -> str:
    """Return the tables that have rows, and the lines on dependence, as HTML."""
    shown = [f"<h3>{escape(title)}</h3>{table(head, rows)}" for title, head, rows in tables(found) if rows]
    lines = [*rank_lines(found.rank), *dependence_lines(found)]
    return "".join(shown) + "".join(f"<p>{escape(line)}</p>" for line in lines)
