"""HTML out of data: whatever a prompt, a name or a completion holds, it is shown as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Html(str):
    """What is HTML already, and holds no text from data that is not escaped."""

    __slots__ = ()


def data(value: object) -> str:
    """Return text from data, escaped, and kept apart from the direction of the text around it."""
    return value if isinstance(value, Html) else f"<bdi>{escape(str(value))}</bdi>"


def once_asked(label: str, shown: str) -> Html:
    """Return the HTML of a prompt; a harmful one is neither seen nor read aloud until it is opened."""
    if label != "harmful":
        return Html(shown)
    return Html(f'<details class="harmful"><summary>harmful prompt: show</summary>{shown}</details>')


def shortened(text: str, n: int) -> str:
    """Return a text of at most n characters, with the number of those left out."""
    return text if len(text) <= n else f"{text[:n]} … ({len(text) - n:,} characters more)"


MOST_CHARACTERS = 2000  # of a cell or a paragraph; what quotes data may be of any length


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table; all cells are escaped. The first cell of a row names it."""
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(_row(row) for row in rows)
    return f'<div class="wide"><table>{told}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(cells: Sequence[str]) -> str:
    name, *rest = cells
    return f'<tr><th scope="row">{_cut(name)}</th>{"".join(f"<td>{_cut(cell)}</td>" for cell in rest)}</tr>'


def _cut(text: str) -> str:
    return text if isinstance(text, Html) else data(shortened(text, MOST_CHARACTERS))


def paragraphs(lines: Sequence[str], kind: str = "") -> str:
    """Return a paragraph a line."""
    given = f' class="{kind}"' if kind else ""
    return "".join(f"<p{given}>{_cut(line)}</p>" for line in lines)


def json_script(name: str, value: Any) -> str:
    """Return data for the page's script, in which no text can end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, written in IN_SCRIPTS.items():
        text = text.replace(character, written)
    return f'<script type="application/json" class="{name}">{text}</script>'
