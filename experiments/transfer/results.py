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
    twins_recall: Estimate  # recall at 1 % false positives there
    unmatched: Estimate  # AUROC on themselves of sets whose classes are no twins: of two sources, or of one
    unmatched_recall: Estimate
    own: Estimate  # AUROC of all sets on themselves
    other: Estimate  # AUROC on other sets with another counterpart, of each first its mean over reads
    other_recall: Estimate  # recall at 1 % false positives there
    other_words: Estimate  # AUROC of words there


class LeftOutRead(Record):
    """A read on sets that are left out of training, each with its family: the sets that share its counterpart."""

    kind: Kind
    name: str
    auroc: dict[str, float]  # by the set that is left out
    mean: float  # over sets
    over_last_token: (
        Estimate  # mean difference to the same sets' AUROC by the last token; the interval is over families
    )
    families: int


class TransferResult(Record):
    """The contents of transfer.json."""

    model: str
    prompts: int
    reads: tuple[TrainedRead, ...]
    cells: tuple[TransferCell, ...]
    summary: tuple[TransferSummary, ...]
    left_out: tuple[LeftOutRead, ...] = ()

    def cells_of(self, kind: Kind) -> tuple[dict[tuple[str, str], TransferCell], list[str]]:
        """Return the cells of a kind by the sets of training and test, and the names of its sets."""
        cells = {(cell.trained_on, cell.tested_on): cell for cell in self.cells if cell.kind == kind}
        return cells, list(dict.fromkeys(read.name for read in self.reads if read.kind == kind))


def blocks(result: TransferResult) -> Iterator[str | Table]:
    """Yield the first screen; of each kind AUROC with that of words in parentheses, means over sets, and reads."""
    yield first_screen(result)
    for summary in result.summary:
        cells, names = result.cells_of(summary.kind)
        rows = [[name, *(_shown(cells.get((name, other))) for other in names)] for name in names]
        yield Table(f"{summary.kind}: AUROC of a read by the set it was trained on, (of words)", ["", *names], rows)
        yield (
            f"{summary.kind}: on its own set {summary.own:.2f}; on other sets {summary.other:.2f}, "
            f"words {summary.other_words:.2f}, without pairs that share benign prompts' source "
            f"(means, 95 % over {summary.other.n} sets)"
        )
        yield reads_table(result, summary.kind)


def first_screen(result: TransferResult) -> Table:
    """Return the means of sets of twins, of other sets, and of sets that a read was not trained on."""
    sides = {"twins": "matched twins", "unmatched": "not matched, different sources", "other": "sets not trained on"}
    rows = [
        [one.kind, *(_over_sets(getattr(one, f"{side}{of}")) for side in sides for of in ("", "_recall"))]
        for one in result.summary
    ]
    head = ["", *(column for title in sides.values() for column in (title, "recall"))]
    return Table(
        "AUROC, and recall at 1 % false positives, of reads by the sets that they are tested on; 95 % over sets",
        head,
        rows,
    )


def reads_table(result: TransferResult, kind: Kind) -> Table:
    """Return the reads of a kind with their AUROC on each set that is left out; no rows where none was measured."""
    reads = [read for read in result.left_out if read.kind == kind]
    rows = []
    for one in reads:
        gain = f"{one.over_last_token:+.3f}" if one.over_last_token.high else ""  # nothing over itself
        rows.append([one.name, *(f"{value:.2f}" for value in one.auroc.values()), f"{one.mean:.3f}", gain])
    names, families = (list(reads[0].auroc), reads[0].families) if reads else ([], 0)
    title = f"{kind}: AUROC on a set left out of training; 95 % over {families} families"
    return Table(title, ["read", *names, "mean", "over last token"], rows)


def _shown(cell: TransferCell | None) -> str:
    return "" if cell is None else f"{cell.auroc.estimate:.2f} ({cell.words_auroc:.2f})"


def _over_sets(number: Estimate) -> str:
    if not number.known:
        return "-"
    return f"{number.estimate:.2f} (one set)" if number.n == 1 else f"{number:.2f}"
