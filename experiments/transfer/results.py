"""transfer.json: how well each read, trained on one set, reads every set; and its tables."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.run.behaviour import Kind
from experiments.transfer.sets import Source
from extract.record import Record
from extract.table import Table
from probes.statistics.intervals import Estimate


class TransferCell(Record):
    """One read on one set; where they are the same, by nested folds."""

    kind: Kind
    trained_on: str
    tested_on: str
    source: Source  # of the set that is tested on
    auroc: Estimate
    recall_at_1pct_fpr: Estimate  # NaN below `LEAST_NEGATIVE` benign prompts; not that the threshold is a draw, too
    words_auroc: float  # of a bag of words that was trained and tested alike
    n_positive: int
    n_negative: int
    left_out: int = 0  # tested prompts that are near-duplicates of, or in a group with, trained ones
    same_counterpart: bool = False  # both have their benign prompts from one set, which may be what is read


class TrainedRead(Record):
    """Where a set's read was fitted: chosen by folds within the set."""

    kind: Kind
    name: str
    source: Source
    layer: int
    position: str
    C: float


class TransferSummary(Record):
    """Means over sets, which are the unit of the intervals."""

    kind: Kind
    twins: Estimate  # AUROC of sets of twins on themselves
    own: Estimate  # AUROC of all sets on themselves
    other: Estimate  # AUROC on other sets with another counterpart, of each first its mean over reads
    other_recall: Estimate  # recall at 1 % false positives there
    other_words: Estimate  # AUROC of words there


class TransferResult(Record):
    """The contents of transfer.json."""

    model: str
    prompts: int
    reads: tuple[TrainedRead, ...]
    cells: tuple[TransferCell, ...]
    summary: tuple[TransferSummary, ...]


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
