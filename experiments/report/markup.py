"""HTML from data: every prompt, name and completion is escaped and shown as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Html(str):
    """A string that is HTML already; all data in it is escaped."""

    __slots__ = ()


def escaped(value: object) -> str:
    """Return data as escaped HTML in its own writing direction (<bdi>); `Html` is returned as it is."""
    return value if isinstance(value, Html) else f"<bdi>{escape(str(value))}</bdi>"


def hidden_if_harmful(label: str, shown: str) -> Html:
    """Return the HTML of a prompt; a harmful one is closed, also to screen readers, until the reader opens it."""
    if label != "harmful":
        return Html(shown)
    return Html(f'<details class="harmful"><summary>harmful prompt: show</summary>{shown}</details>')


def shortened(text: str, n: int) -> str:
    """Return the first n characters of a text, with the number of characters left out."""
    return text if len(text) <= n else f"{text[:n]} … ({len(text) - n:,} characters more)"


MOST_CHARACTERS = 2000  # of a cell or a paragraph, since quoted data may have any length


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table; all cells are escaped. The first cell of a row is its header."""
    described = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(_row(row) for row in rows)
    return f'<div class="wide"><table>{described}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(cells: Sequence[str]) -> str:
    name, *rest = cells
    return f'<tr><th scope="row">{_cut(name)}</th>{"".join(f"<td>{_cut(cell)}</td>" for cell in rest)}</tr>'


def _cut(text: str) -> str:
    return text if isinstance(text, Html) else escaped(shortened(text, MOST_CHARACTERS))


def paragraphs(lines: Sequence[str], kind: str = "") -> str:
    """Return one HTML paragraph per line, of the CSS class `kind`."""
    given = f' class="{kind}"' if kind else ""
    return "".join(f"<p{given}>{_cut(line)}</p>" for line in lines)


def json_script(name: str, value: Any) -> str:
    """Return a script element with data as JSON; no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, written in IN_SCRIPTS.items():
        text = text.replace(character, written)
    return f'<script type="application/json" class="{name}">{text}</script>'
