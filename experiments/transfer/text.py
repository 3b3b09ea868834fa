"""The transfer matrix on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.transfer.results import TransferCell, TransferResult
from extract.table import Table


def blocks(result: TransferResult) -> Iterator[str | Table]:
    """Yield a table of each kind, AUROC with that of words in parentheses, and the means over sets."""
    for summary in result.summary:
        cells = {(cell.trained_on, cell.tested_on): cell for cell in result.cells if cell.kind == summary.kind}
        names = list(dict.fromkeys(read.name for read in result.reads if read.kind == summary.kind))
        rows = [[name, *(_shown(cells.get((name, other))) for other in names)] for name in names]
        yield Table(f"{summary.kind}: AUROC of a read by the set it was trained on, (of words)", ["", *names], rows)
        yield (
            f"{summary.kind}: on its own set {summary.own:.2f}, sets of twins {summary.twins:.2f}; on other sets "
            f"{summary.other:.2f}, words {summary.other_words:.2f}, without pairs that share benign prompts' source; "
            f"recall at 1 % false positives there {summary.other_recall:.0%} (means, 95 % over {summary.other.n} sets)"
        )


def _shown(cell: TransferCell | None) -> str:
    return "" if cell is None else f"{cell.auroc.estimate:.2f} ({cell.words_auroc:.2f})"
