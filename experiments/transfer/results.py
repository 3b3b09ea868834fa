"""transfer.json: how well each read, trained on one set, reads every set."""

from __future__ import annotations

from experiments.run.behaviour import Kind
from experiments.transfer.sets import Source
from extract.record import Record
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
