"""The section of the report on the dials."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from experiments.dials.results import SteerResult
from experiments.dials.text import dial_lines, point_rows, warning_lines

HtmlTable = Callable[[list[str], list[list[str]]], str]


def steer_warnings(result: SteerResult) -> str:
    """Return the paragraphs on limits that no setting meets and rates that the dials make worse; for the top."""
    return "".join(f'<p class="verdict caveat">{escape(line)}</p>' for line in warning_lines(result))


def steer_section(result: SteerResult, table: HtmlTable) -> str:
    """Return the lines on thresholds and certificates, and the table of policies; nothing without dials."""
    if result.matched is None:
        return ""
    lines = "".join(f"<p>{escape(line)}</p>" for line in dial_lines(result))
    most = result.matched.over_refusal_at_most
    caption = f"<p>Each policy at over_refusal of at most {most:.1%} on the choice prompts:</p>"
    return lines + caption + table(*point_rows(result.matched, result.system_lines))
