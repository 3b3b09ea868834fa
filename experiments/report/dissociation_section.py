"""The dissociation's part of the report: figure, tables, what stands beside the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from experiments.dissociation.text import tables
from experiments.run.wording import dependence_lines

HtmlTable = Callable[[list[str], list[list[str]]], str]


def dissociation_section(record: Mapping[str, Any], table: HtmlTable) -> str:
    """Return the tables that have rows, and a line on dependence."""
    shown = [f"<h3>{escape(title)}</h3>{table(head, rows)}" for title, head, rows in tables(record) if rows]
    return "".join(shown) + "".join(f"<p>{escape(line)}</p>" for line in dependence_lines(record))
