"""Draws judged completions at random for people to label, in one pass, with the probability that each is drawn.

Every completion has a number between 0 and 1 from the seed and its id. The n smallest are drawn, so a larger draw with
the same seed contains a smaller one, and the first part of a draw is itself a draw. With `stratify`, completions that
the judge counts in a rate and those that it does not count are strata, half of the draw is divided equally among them,
and rare ones are drawn more often (each number is divided by its stratum's rate: sequential Poisson sampling, Ohlsson
1998). With `against`, whether another judge counts them otherwise divides the strata further: where two
judges disagree, one of them errs. The draw does not contain the judge's action, because annotators must not know it.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from extract.errors import UserError
from extract.prompts.prompt import LABELS
from extract.record import Record
from scoring.labels.label_file import Key
from scoring.ledger import Entry, Ledger, workspace
from scoring.rates import RATES
from scoring.scored_file import scored_entries, scored_path

Stratum = tuple[object, ...]


class DrawnRow(Record):
    """A completion to label, with its prompt."""

    id: str
    sample: str = ""
    group: str
    text: str | None = None
    completion: str
    inclusion: float  # the probability that it is drawn

    @property
    def key(self) -> Key:
        return self.id, self.sample


class Draw(Record):
    """Completions drawn from a file, in the order in which people label them."""

    source: str
    seed: int
    stratified: bool
    against: str | None = None  # another judge's scores of the same completions
    judged: int  # completions that could have been drawn
    rows: tuple[DrawnRow, ...]


def draw_rows(path: Path, n: int, seed: int, *, stratify: bool, against: Path | None = None) -> Draw:
    """Draw n judged completions of labelled prompts, or all there are, of a run, a scored file or its directory.

    Args:
        against: another judge's scores of them, a path as the first; more are drawn where the two disagree.
    """
    file, other = scored_path(path), None if against is None else scored_path(against)
    said = {} if other is None else {(entry.case.id, entry.sample): entry.action for entry in _judged(other)}
    sizes: Counter[Stratum] = Counter()
    smallest: dict[Stratum, list[tuple[float, int, DrawnRow]]] = defaultdict(list)  # heaps: the largest number first
    for number, entry in enumerate(_judged(file)):
        case, stratum = entry.case, Stratum()
        counted = [counts for label, counts in RATES.values() if label == case.label]
        if stratify:  # the label, and for each of its rates whether the judge's action counts
            stratum = (case.label, *(entry.action in counts for counts in counted))
        if other is not None:
            another = said.get((case.id, entry.sample), entry.action)
            stratum = (*stratum, any((entry.action in counts) != (another in counts) for counts in counted))
        sizes[stratum] += 1
        heap = smallest[stratum]
        name = repr((seed, case.id, entry.sample)).encode("utf-8", "surrogatepass")
        place = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") / 2**64
        about = {"id": case.id, "sample": entry.sample, "group": case.group, "text": case.text}
        row = DrawnRow(**about, completion=entry.completion or "", inclusion=1.0)
        push = heapq.heappush if len(heap) < n else heapq.heappushpop
        push(heap, (-place, number, row))
    if not sizes:
        raise UserError(
            f"{file} has no judged completions of benign, harmful or uncertain prompts; score them with "
            "labels first: refusal score COMPLETIONS --prompts FILE"
        )
    rate = {stratum: 0.5 + 0.5 * sizes.total() / (len(sizes) * size) for stratum, size in sizes.items()}
    candidates = [(-x / rate[stratum], stratum, row) for stratum, heap in smallest.items() for x, _, row in heap]
    drawn = sorted(candidates, key=itemgetter(0))[:n]
    share = {stratum: times / sizes[stratum] for stratum, times in Counter(stratum for _, stratum, _ in drawn).items()}
    rows = tuple(row.model_copy(update={"inclusion": share[stratum]}) for _, stratum, row in drawn)
    return Draw(
        source=str(file.resolve()),
        seed=seed,
        stratified=stratify,
        against=None if other is None else str(other.resolve()),
        judged=sizes.total(),
        rows=rows,
    )


def _judged(file: Path) -> Iterator[Entry]:
    """Yield the judged completions that a rate counts, each once, with the sample that the scorecard counts it as."""
    with workspace() as connection:
        ledger = Ledger(connection)
        for entry in scored_entries(file):
            status, sample = ledger.add(entry)
            if status == "repeated" or entry.action is None or entry.case.label not in LABELS:
                continue
            if entry.completion is None:
                raise UserError(
                    f"{file} does not contain the completion of id {entry.case.id!r}; score the "
                    "completions again, which stores them: refusal score COMPLETIONS"
                )
            yield replace(entry, sample=sample)
