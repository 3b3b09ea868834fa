"""Joins two ledgers into one table of paired completions (same prompt and sample) and counts in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Set
from typing import Any

from extract.record import Record
from scoring.ledger import Ledger, group_overlap
from scoring.right_action import GroupOverlap, ScoredChange

COLUMNS = (
    "a.rowid AS row_a",
    "b.rowid AS row_b",
    "a.grp AS grp_a",
    "b.grp AS grp_b",
    "a.label",
    "a.right_action",
    "a.acceptable",
    "a.action AS first",
    "b.action AS second",
    "a.label IS b.label AS same_label",
    "a.label IS b.label AND a.right_action IS b.right_action AND a.acceptable = b.acceptable AS same_right",
    "COALESCE(a.text != b.text, FALSE) AS other_text",
)
JOINED = "a.id = b.id AND a.sample = b.sample AND a.counted AND b.counted"
BOTH = "first IS NOT NULL AND second IS NOT NULL"
RIGHT = f"same_right AND right_action IS NOT NULL AND {BOTH}"


class Transition(Record):
    """The number of completions of one label that changed from one action to another."""

    label: str | None
    first: str
    second: str
    n: int


class Flip(Record):
    """A prompt whose action changed; an action is null where the completion was not judged."""

    id: str
    sample: str
    label: str | None
    text: str | None
    first: str | None
    second: str | None
    first_evidence: str
    second_evidence: str


class PairedCompletions:
    """Completions of the same prompt and sample in two ledgers, tables `a` and `b` of one connection.

    Groups are those of the ledger with fewer groups, so that the order of the ledgers does not matter.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.execute("DROP TABLE IF EXISTS pairs")
        connection.execute(f"CREATE TABLE pairs AS SELECT {', '.join(COLUMNS)} FROM a JOIN b ON {JOINED}")
        n_groups = connection.execute("SELECT COUNT(DISTINCT grp_a), COUNT(DISTINCT grp_b) FROM pairs").fetchone()
        self.group = "grp_a" if n_groups[0] <= n_groups[1] else "grp_b"

    def count(self, where: str) -> int:
        """Count the pairs that meet an SQL condition."""
        return int(self._one(f"SELECT COUNT(*) FROM pairs WHERE {where}")[0])

    def alone(self, mine: Ledger, other: Ledger) -> int:
        """Count the completions of one ledger without a counterpart in the other."""
        there = f"SELECT 1 FROM {other.name} y WHERE y.counted AND y.id = x.id AND y.sample = x.sample"
        return int(self._one(f"SELECT COUNT(*) FROM {mine.name} x WHERE counted AND NOT EXISTS ({there})")[0])

    def fourfold(self, label: str, hits: Set[str]) -> tuple[int, int, int, int]:
        """Count pairs of one label, judged in both, with a hit in both, only the first, only the second, neither."""
        totals = "TOTAL(x AND y), TOTAL(x AND NOT y), TOTAL(y AND NOT x), TOTAL(NOT x AND NOT y)"
        both, only_first, only_second, neither = map(int, self._one(f"SELECT {totals} FROM ({_hits(label, hits)})"))
        return both, only_first, only_second, neither

    def grouped(self, label: str, hits: Set[str]) -> tuple[dict[int, int], float]:
        """Return the number of groups by net change in hits (second minus first), and the sum of squared sizes."""
        sums = f"SELECT SUM(y) - SUM(x) AS net, COUNT(*) AS n FROM ({_hits(label, hits)}) GROUP BY {self.group}"
        rows = self.connection.execute(f"SELECT net, COUNT(*), TOTAL(n * n) FROM ({sums}) GROUP BY 1").fetchall()
        return {net: groups for net, groups, _ in rows}, float(sum(squares for _, _, squares in rows))

    def changes(self) -> tuple[dict[ScoredChange, int], GroupOverlap]:
        """Return counts of the first and second actions by right action, and the group overlap of right actions."""
        rows = self.connection.execute(
            f"SELECT right_action, acceptable, first, second, COUNT(*) FROM pairs WHERE {RIGHT} GROUP BY 1, 2, 3, 4"
        )
        counts = {(right, tuple(x for x in also.split("|") if x), old, new): n for right, also, old, new, n in rows}
        source = f"(SELECT right_action, {self.group} AS grp FROM pairs WHERE {RIGHT})"
        return counts, group_overlap(self.connection, source)

    def transitions(self) -> tuple[Transition, ...]:
        """Count changes from one action to another, by label, the most frequent first."""
        rows = self.connection.execute(
            "SELECT label, COALESCE(first, 'unjudged'), COALESCE(second, 'unjudged'), COUNT(*) FROM pairs "
            "WHERE same_label AND first IS NOT second GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3"
        )
        return tuple(Transition(label=label, first=first, second=second, n=n) for label, first, second, n in rows)

    def flips(self) -> tuple[Flip, ...]:
        """Return the completions whose action changed, in the first run's order."""
        rows = self.connection.execute(
            "SELECT a.id, a.sample, a.label, COALESCE(a.text, b.text), a.action, b.action, a.evidence, b.evidence "
            "FROM pairs JOIN a ON a.rowid = row_a JOIN b ON b.rowid = row_b "
            "WHERE same_label AND first IS NOT second ORDER BY row_a"
        )
        return tuple(Flip.model_validate(dict(zip(Flip.model_fields, row, strict=True))) for row in rows)

    def _one(self, sql: str) -> Any:
        return self.connection.execute(sql).fetchone()


def _hits(label: str, hits: Set[str]) -> str:
    hit = f"IN ({', '.join(repr(action) for action in sorted(hits))})"
    return (
        f"SELECT grp_a, grp_b, first {hit} AS x, second {hit} AS y FROM pairs "
        f"WHERE same_label AND label = '{label}' AND {BOTH}"
    )
