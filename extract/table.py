"""Tables and lines of text, declared once: shown on a terminal and in Markdown here, in HTML by the report's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text


@dataclass(frozen=True)
class Quoted:
    """A prompt or an answer in a cell; on a page, a harmful one is closed until the reader opens it."""

    label: str
    text: str


Cell = str | Quoted


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its header. On a page, a fold is closed until the reader opens it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    fold: bool = False
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a CSS class; a terminal shows its lead before it, in bold."""

    text: str
    lead: str = ""
    style: str = ""
    kind: ClassVar[str] = "line"


@dataclass(frozen=True)
class Request:
    """A request with the score of each word (None where it is not notable) and how many words are left out."""

    label: str
    words: Sequence[tuple[str, float | None]]
    left_out: int = 0
    kind: ClassVar[str] = "request"


def print_blocks(blocks: Iterable[str | Paragraph | Table | Request]) -> None:
    """Print tables that have rows, lines and requests; lines are wrapped on a terminal alone."""
    from rich.console import Console

    console = Console(highlight=False)
    for block in blocks:
        if not isinstance(block, Table):
            console.print(_text(block), soft_wrap=not console.is_terminal)
        elif block.rows:
            console.print(_rich(block, console.width))


def markdown(table: Table) -> str:
    """Return a table in Markdown, without its title."""
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    cells = [[" ".join(_plain(cell).split()).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _plain(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _rich(table: Table, width: int) -> RichTable:
    """Lay out a table; numbers with limits stay in one piece where the terminal is wide enough."""
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table as RichTable

    shown = RichTable(title=escape(table.title), box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    columns = [[name, *map(_plain, cells)] for name, *cells in zip(table.columns, *table.rows, strict=True)]
    whole = [any("[" in cell for cell in cells[1:]) for cells in columns]
    least = [
        max(map(len, cells if one_piece else " ".join(cells).split()))
        for cells, one_piece in zip(columns, whole, strict=True)
    ]
    fits = sum(least) + len(least) <= width
    for (name, *_), one_piece in zip(columns, whole, strict=True):
        shown.add_column(escape(str(name)), overflow="fold", no_wrap=fits and one_piece)
    for row in table.rows:
        shown.add_row(*(escape(_plain(cell)) for cell in row))
    return shown


def _text(block: str | Paragraph | Request) -> Text:
    from rich.text import Text

    if isinstance(block, str):
        return Text(block)
    if isinstance(block, Paragraph):
        return Text.assemble((block.lead, "bold"), " " if block.lead else "", block.text)
    text = Text(f"  {block.label}: ", style="dim")
    for word, score in block.words:
        text.append(
            f"{word} " if score is None else f"{word} [{score:+.1f}] ", style="" if score is None else "bold red"
        )
    return text.append(f"… ({block.left_out:,} words more)") if block.left_out else text
