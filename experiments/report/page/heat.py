"""Heat maps as HTML tables: they work with a keyboard, a screen reader, in print and in dark mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib import colormaps
from matplotlib.colors import to_hex

from experiments.report.markup import escaped


@dataclass(frozen=True)
class HeatCell:
    """One cell: its place on the colour scale (0 to 1), its text and its tooltip."""

    shade: float
    text: str
    tip: str
    chosen: bool = False


def heat_map(caption: str, corner: str, rows: Sequence[str], columns: Sequence[str],
             cells: Mapping[tuple[str, str], HeatCell]) -> str:  # fmt: skip
    """Return a table whose cells are coloured by cividis, a scale for colour-blind readers as well."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{escaped(row)}</th>{"".join(_cell(cells.get((row, column))) for column in columns)}</tr>'
        for row in rows
    )
    return (f'<div class="wide"><table class="heat"><caption>{escape(caption)}</caption><thead><tr>'
            f'<th scope="col">{escape(corner)}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>')  # fmt: skip


def ink_on(colour: Sequence[float]) -> str:
    """Return black or white, whichever has the higher contrast with a colour (relative luminance, WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fff"


def _cell(cell: HeatCell | None) -> str:
    if cell is None:
        return '<td class="none">-</td>'
    colour = colormaps["cividis"](min(1.0, max(0.0, cell.shade)))
    mark, star = (' class="chosen"', " ★") if cell.chosen else ("", "")
    style = f"background:{to_hex(colour)};color:{ink_on(colour)}"
    tip = f'tabindex="0" data-tip="{escape(cell.tip, quote=True)}"'
    return f'<td{mark} {tip} style="{style}">{escape(cell.text)}{star}</td>'
