"""transfer.html: the means, and of each kind a heat map of the matrix and the table of reads."""

from __future__ import annotations

from pathlib import Path

from experiments.charts.blocks import Block, Section, figure
from experiments.charts.grids import heat_map
from experiments.charts.specification import Row, fields
from experiments.report.page.document import document, render, write_page
from experiments.run.behaviour import Kind
from experiments.transfer.results import TransferResult, first_screen, reads_table

COLUMNS = {"row": "trained on", "column": "tested on", "estimate": "AUROC", "low": "from", "high": "to"}
COLUMNS |= {"words": "AUROC of words", "n": "n"}
CAPTION = "AUROC of each read on each set, under it that of a bag of words; framed: on its own set, by nested folds"
COLUMN_WIDTH = 104  # pixels, of the longest shipped name


def write_transfer_page(result: TransferResult, path: Path) -> None:
    """Write the page of a matrix; it works offline."""
    title = f"Transfer: {result.model}"
    sections = [Section("means", "Means", f"{result.prompts:,} prompts", [first_screen(result)])]
    for one in result.summary:
        rows = _rows(result, one.kind)
        axes = {"columns": "tested on", "lines": "trained on", "unit": "AUROC"}
        chart = heat_map(rows, title="", domain=(0.5, 1.0), column_width=COLUMN_WIDTH, **axes)
        made: list[Block] = [figure(f"matrix-{one.kind}", chart, CAPTION, rows, COLUMNS)]
        made += [table for table in [reads_table(result, one.kind)] if table.rows]
        sections.append(Section(one.kind, one.kind, f"{one.kind.capitalize()} reads", made))
    write_page(document(title, [render("comparison.html", title=title, runs=[], sections=sections)]), path)


def _rows(result: TransferResult, kind: Kind) -> list[Row]:
    cells, names = result.cells_of(kind)
    return [
        {"row": train, "column": test, **fields(cell.auroc), "n": cell.n_positive + cell.n_negative}
        | {"words": cell.words_auroc, "small": f"words {cell.words_auroc:.2f}", "chosen": train == test}
        for train in names
        for test in names
        if (cell := cells.get((train, test))) is not None
    ]
