"""Small HTML tables for notebooks (`_repr_html_`); every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from jaxtyping import Bool


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table under a line that names it; the first cell of a row is its head. Floats have three decimals."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{_cell(first)}</th>{"".join(f"<td>{_cell(value)}</td>" for value in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def present_table(
    caption: str, positions: Sequence[str], present: Bool[np.ndarray, "positions prompts"], labels: Sequence[str]
) -> str:
    """Return a notebook's table of activations: how many prompts of each label have each position."""
    columns = {label: np.array([own == label for own in labels], dtype=bool) for label in dict.fromkeys(labels)}
    rows = [
        [position, *(int((has & own).sum()) for own in columns.values()), int(has.sum())]
        for position, has in zip(positions, present, strict=True)
    ]
    named = [label or "no label" for label in columns]
    return html_table(caption, ["position", *named, "all"], rows)


def _cell(value: object) -> str:
    return escape(f"{value:.3f}" if isinstance(value, float) else str(value))
