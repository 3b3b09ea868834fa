"""Judged completions in a temporary SQLite table on disk: counting a million takes no more memory than counting ten.

One connection may hold several tables: `compare/comparison.py` joins two. SQLite removes its temporary file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Literal

from extract.errors import UserError
from extract.prompts.prompt import RIGHT_ACTIONS
from probes.statistics.intervals import NO_RATE, Estimate
from scoring.case import Case
from scoring.fields import FIELDS
from scoring.judges import Judgement
from scoring.rates import mean_of_groups

_CASE = tuple(f.name for f in fields(Case) if f.name != "messages")
_COLUMNS = (  # as `Ledger.add` fills them
    *"given sample nth digest counted".split(),
    *("grp" if name == "group" else name for name in _CASE),
    *"action evidence refused_by confidence thought delivered".split(),
    *(f"scored_{name}" for name in FIELDS),
)
DISK_FULL_MESSAGES = ("full", "disk I/O error", "unable to open")  # SQLite's messages where the disk is full
EntryStatus = Literal["new", "repeated", "conflicting"]


@dataclass(frozen=True, kw_only=True)
class Entry(Judgement):
    """The judgement of a case's completion, with all known fields; `sample` numbers several completions of one case."""

    case: Case
    sample: str = ""
    completion: str | None = None  # None, too, where a scored file does not hold it
    confidence: float | None = None  # that the answer is right, as the model states it
    thought: int | None = None  # words of the thinking block, where there is one


@contextmanager
def workspace() -> Iterator[sqlite3.Connection]:
    """Open a temporary database on disk; a full disk is a UserError."""
    connection = sqlite3.connect("", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("BEGIN")
        yield connection
    except sqlite3.OperationalError as error:
        if not any(message in str(error) for message in DISK_FULL_MESSAGES):
            raise
        raise UserError(
            f"cannot store the temporary table ({error}); set SQLITE_TMPDIR to a directory with more "
            "space, and run the command again"
        ) from None
    finally:
        connection.close()


class Ledger:
    """A table of entries to count in. It keeps repeated entries and counts them once."""

    def __init__(self, connection: sqlite3.Connection, name: str = "completions") -> None:
        self.connection = connection
        self.name = name
        connection.execute(f"CREATE TABLE {name} ({', '.join(_COLUMNS)})")
        connection.execute(f"CREATE INDEX {name}_id ON {name} (id, sample)")
        # partial indexes, of entries after the first with their id: free where ids are unique, and fast where a million
        # entries share one id
        connection.execute(f"CREATE INDEX {name}_later ON {name} (id, given, digest) WHERE nth > 1")
        connection.execute(f"CREATE INDEX {name}_nth ON {name} (id, given, nth) WHERE nth > 1")
        self._insert = f"INSERT INTO {name} VALUES ({', '.join('?' * len(_COLUMNS))})"

    def add(self, entry: Entry) -> tuple[EntryStatus, str]:
        """Add a completion; return whether its id and sample were there, with the same text or another, and its sample.

        Another text under one id counts as a further, numbered sample, since it is unknown which of them is meant.
        """
        case = entry.case
        about = [getattr(case, name) for name in _CASE]
        about[_CASE.index("acceptable")] = "|".join(sorted(set(case.acceptable)))
        content = (entry.action, entry.evidence) if entry.completion is None else entry.completion
        text = repr((content, about)).encode("utf-8", "surrogatepass")
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)
        seen, sample, nth = self._place(case.id, entry.sample, digest)
        row = [entry.sample, sample, nth, digest, seen != "repeated", *about, entry.action, entry.evidence]
        row += [entry.by, entry.confidence, entry.thought, entry.delivered, *map(entry.fields.get, FIELDS)]
        self.connection.execute(self._insert, row)
        return seen, sample

    def _place(self, identifier: str, given: str, digest: int) -> tuple[EntryStatus, str, int]:
        first = self._find("digest", "id", "id = ? AND sample = ? AND counted", identifier, given)
        if first is None:
            return "new", given, 1
        mine = "id = ? AND given = ? AND nth > 1"
        if first == digest or self._find("1", "later", f"{mine} AND digest = ?", identifier, given, digest):
            return "repeated", given, 0
        nth = self._find("nth", "nth", f"{mine} ORDER BY nth DESC", identifier, given) or 1
        while True:
            nth += 1
            sample = f"{given}#{nth}"
            if self._find("1", "id", "id = ? AND sample = ?", identifier, sample) is None:
                return "conflicting", sample, nth

    def _find(self, what: str, index: str, where: str, *given: object) -> Any:
        table = f"{self.name} INDEXED BY {self.name}_{index}"  # else SQLite may scan all entries of one id
        row = self.connection.execute(f"SELECT {what} FROM {table} WHERE {where} LIMIT 1", given).fetchone()
        return None if row is None else row[0]

    def query(self, what: str, where: str = "TRUE", then: str = "", given: Sequence[Any] = ()) -> list[Any]:
        """Select from the entries that count (repeated ones do not)."""
        return self.connection.execute(
            f"SELECT {what} FROM {self.name} WHERE counted AND ({where}) {then}", tuple(given)
        ).fetchall()

    def totals(self, value: str, where: str = "TRUE", by: str = "'all'") -> Iterator[tuple[Any, float, int, float]]:
        """Yield the total of an SQL expression, the number of entries where it is not null, and of effective groups.

        The values of the expression `by` are counted apart; each is yielded first.
        """
        groups = (
            f"SELECT {by} AS part, TOTAL({value}) AS total, COUNT({value}) AS n FROM {self.name} "
            f"WHERE counted AND ({where}) GROUP BY 1, grp"
        )
        sums = f"SELECT part, TOTAL(total), CAST(TOTAL(n) AS INTEGER), TOTAL(n * n) FROM ({groups}) GROUP BY 1"
        for part, total, n, squares in self.connection.execute(sums):
            yield part, total, n, n * n / squares if squares else 0.0

    def mean(self, value: str, where: str = "TRUE") -> Estimate:
        """Return the mean of an SQL expression from 0 to 1, with its interval over groups; see `totals`."""
        return next((mean_of_groups(*counted) for _, *counted in self.totals(value, where)), NO_RATE)


def taken(actions: Set[str]) -> str:
    """Return the SQL condition that the action is one of these; null where it is not judged."""
    return f"action IN ({', '.join(map(repr, sorted(actions)))})"


def group_overlap(connection: sqlite3.Connection, source: str) -> dict[tuple[str, str], float]:
    """Return, for each pair of right actions, the sum over groups of the product of their numbers of rows in `source`.

    That is a table or subquery with columns `right_action` and `grp`.
    """
    rows = ", ".join(f"TOTAL(right_action = '{action}') AS n{i}" for i, action in enumerate(RIGHT_ACTIONS))
    pairs = list(product(enumerate(RIGHT_ACTIONS), repeat=2))
    products = ", ".join(f"TOTAL(n{i} * n{j})" for (i, _), (j, _) in pairs)
    totals = connection.execute(f"SELECT {products} FROM (SELECT {rows} FROM {source} GROUP BY grp)").fetchone()
    return {(c, d): total for ((_, c), (_, d)), total in zip(pairs, totals, strict=True) if total}
