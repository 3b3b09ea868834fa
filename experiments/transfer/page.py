"""transfer.html: matched twins and different sources side by side, a heat map a kind, and the reads' table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.charts.blocks import Block, Section, figure
from experiments.charts.grids import heat_map
from experiments.charts.specification import Row, fields
from experiments.report.page.document import document, render, write_page
from experiments.run.behaviour import Kind
from experiments.transfer.results import TransferResult, cells_of, first_screen, reads_table

COLUMNS = {"row": "trained on", "column": "tested on", "estimate": "AUROC", "low": "from", "high": "to"}
COLUMNS |= {"words": "AUROC of words", "n": "n"}
CAPTION = "AUROC of each read on each set, below it that of a bag of words; framed: on its own set, by nested folds"
COLUMN_WIDTH = 104  # of the longest shipped name


def write_transfer_page(result: TransferResult, path: Path) -> None:
    """Write the page of a matrix; it works offline."""
    title = f"Transfer: {result.model}"
    top = Section("means", "Means", f"{result.prompts:,} prompts; nothing is generated", [first_screen(result)])
    kinds = [one.kind for one in result.summary]
    sections = [
        top,
        *(Section(kind, kind, f"{kind.capitalize()} reads", list(_blocks(result, kind))) for kind in kinds),
    ]
    write_page(document(title, [render("comparison.html", title=title, runs=[], sections=sections)]), path)


def _blocks(result: TransferResult, kind: Kind) -> Iterator[Block]:
    rows = _rows(result, kind)
    chart = heat_map(
        rows,
        title="",
        columns="tested on",
        lines="trained on",
        unit="AUROC",
        domain=(0.5, 1.0),
        column_width=COLUMN_WIDTH,
    )
    yield figure(f"matrix-{kind}", chart, CAPTION, rows, COLUMNS)
    if table := reads_table(result, kind):
        yield table


def _rows(result: TransferResult, kind: Kind) -> list[Row]:
    cells, names = cells_of(result, kind)
    return [
        {
            "row": train,
            "column": test,
            **fields(cell.auroc),
            "n": cell.n_positive + cell.n_negative,
            "words": cell.words_auroc,
            "small": f"words {cell.words_auroc:.2f}",
            "chosen": train == test,
        }
        for train in names
        for test in names
        if (cell := cells.get((train, test))) is not None
    ]
