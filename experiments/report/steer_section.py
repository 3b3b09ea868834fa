"""The dials' part of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from experiments.dials.text import point_rows, steer_lines

HtmlTable = Callable[[list[str], list[list[str]]], str]


def steer_section(record: Mapping[str, Any], table: HtmlTable, figure: str) -> str:
    """Return lines, picture and the policies beside each other; nothing without dials."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in steer_lines(record))
    if not lines:
        return ""
    most = record["matched"]["over_refusal_at_most"]
    caption = f"<p>Each policy where it declines at most {most:.1%} of the benign prompts that choose:</p>"
    return lines + figure + caption + table(*point_rows(record))
