"""`refusal compare`: paired changes of the joint rates between runs on the same prompts, with tests.

Every later run is compared with the first, prompt by prompt. A change of a rate is *shown* where McNemar's test over
groups is significant at 5 % after Holm's correction over the three rates and `uncertain_refused`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import gammaln

from extract.atomic_write import make_folder, write_json, write_jsonl
from extract.errors import UserError
from extract.record import Record
from probes.statistics.intervals import NO_DIFFERENCE, NO_ESTIMATE, Estimate, tango_of_shares
from probes.statistics.permutation import holm
from scoring.ledger import Ledger, group_overlap, workspace
from scoring.rates import RATES, JointRates
from scoring.right_action import Adjacency, GroupOverlap, ScoredChange, score_change
from scoring.scorecard import scorecard
from scoring.scored_file import judge_of, load_scored

Move = Literal["better", "worse", "along_the_trade_off", "at_odds", "none_shown"]
COLUMNS = """
    a.rowid AS row_a, b.rowid AS row_b, a.grp AS grp_a, b.grp AS grp_b, a.label, a.right_action, a.acceptable,
    a.action AS first, b.action AS second, a.label IS b.label AS same_label,
    a.label IS b.label AND a.right_action IS b.right_action AND a.acceptable = b.acceptable AS same_right,
    COALESCE(a.text != b.text, FALSE) AS other_text
"""
JOINED = "a.id = b.id AND a.sample = b.sample AND a.counted AND b.counted"
BOTH = "first IS NOT NULL AND second IS NOT NULL"
RIGHT = f"same_right AND right_action IS NOT NULL AND {BOTH}"
LABELLED = "same_label AND label IS NOT NULL"
MATCHED = {  # number of pairs: SQL condition
    "prompts": LABELLED,
    "label_differs": "NOT same_label",
    "right_action_differs": "same_label AND NOT same_right",
    "text_differs": "other_text",
    "unjudged_in_first": f"{LABELLED} AND first IS NULL",
    "unjudged_in_second": f"{LABELLED} AND second IS NULL",
}


class ScoredRun(Record):
    """A run: the file of its judged completions, its repeated and conflicting ids, its judge, and its joint rates."""

    run: str
    file: str
    repeated: int = 0
    conflicting: int = 0
    judge: str | None = None  # null where neither a scorecard nor a run's configuration lies beside the file
    n: int
    rates: JointRates
    right_action: Estimate


class MatchCounts(Record):
    """Numbers of completions that two runs share, lack or label differently; `prompts`: same prompt and label."""

    prompts: int
    only_in_first: int
    only_in_second: int
    label_differs: int
    right_action_differs: int
    text_differs: int
    unjudged_in_first: int
    unjudged_in_second: int


class RateChange(Record):
    """The change of one rate on the prompts that both runs judged; the difference is second minus first."""

    first: float | None
    second: float | None
    difference: Estimate
    stopped: int  # hits of the first run only
    began: int  # hits of the second run only
    mcnemar_p: float
    mcnemar_p_holm: float
    shown: bool  # significant at 5 %, corrected over the rates


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


class ComparedRun(ScoredRun):
    """A later run, compared with the first."""

    matched: MatchCounts
    changes: dict[str, RateChange]
    right_action_change: Estimate
    move: Move
    transitions: tuple[Transition, ...] = ()
    flips: tuple[Flip, ...] = ()  # written to flips.jsonl, not to comparison.json


class FailedCondition(Record):
    """A condition of `--fail-if` that a run meets, or that cannot be evaluated."""

    run: str
    condition: str
    known: bool  # false: it cannot be evaluated
    value: float | None


class Comparison(Record):
    """The first run, and every later run compared with it."""

    first: ScoredRun
    comparisons: tuple[ComparedRun, ...]
    failed: tuple[FailedCondition, ...] = ()


def compare_runs(paths: Sequence[Path], credits: Adjacency) -> Comparison:
    """Return the comparison of each later run with the first; a UserError where they share no labelled prompt."""
    with workspace() as connection:
        first = Ledger(connection, "a")
        described, compared = _scored(first, paths[0], credits), []
        for path in paths[1:]:
            connection.execute("DROP TABLE IF EXISTS b")
            second = Ledger(connection, "b")
            run = _scored(second, path, credits)
            compared.append(_compared(run, first, second, credits, paths[0]))
    return Comparison(first=described, comparisons=tuple(compared))


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Write comparison.json, and flips.jsonl with one flipped prompt a line."""
    make_folder(out)
    record = comparison.to_dict()
    flips = [{"run": one["run"], **flip} for one in record["comparisons"] for flip in one.pop("flips")]
    write_jsonl(out / "flips.jsonl", flips)
    write_json(out / "comparison.json", record)


def _scored(ledger: Ledger, path: Path, credits: Adjacency) -> ScoredRun:
    file, again = load_scored(path, ledger)
    card = scorecard(ledger, credits)  # with rates: `load_scored` refuses a run without labels
    scores = {"rates": card.rates, "right_action": card.right_action.score}
    return ScoredRun(run=str(path), file=str(file), **again, judge=judge_of(file), n=card.n, **scores)


def _compared(run: ScoredRun, first: Ledger, second: Ledger, credits: Adjacency, first_path: Path) -> ComparedRun:
    pairs = PairedCompletions(first.connection)
    alone = {"only_in_first": pairs.alone(first, second), "only_in_second": pairs.alone(second, first)}
    matched = MatchCounts(**alone, **pairs.counts())
    if not matched.prompts:
        why = " (they share ids, but with different labels)" if matched.label_differs else ""
        if not why and pairs.query("SELECT 1 FROM a JOIN b ON a.id = b.id AND a.sample != b.sample LIMIT 1"):
            why = " (they share ids, but with different values of 'sample')"
        raise UserError(
            f"{first_path} and {run.run} share no labelled prompts{why}; compare completions of the same prompts"
        )
    changes, right = _changes(pairs), score_change(*pairs.changes(), credits)
    return ComparedRun(
        **dict(run),
        matched=matched,
        changes=changes,
        right_action_change=right,
        move=move(changes, right),
        transitions=pairs.transitions(),
        flips=pairs.flips(),
    )


def move(changes: Mapping[str, RateChange], right: Estimate = NO_ESTIMATE) -> Move:
    """Classify the change of the four rates, all of which count mistakes, so that lower is better.

    `uncertain_refused` counts too, since refusing uncertain prompts lowers overconfidence without abstaining.
    `at_odds`: the rates fell and so did the right-action score (`right`, its change, second minus first), or both rose:
    other wrong actions, such as gibberish or changes of topic, took the place of these mistakes.
    """
    shown = [change.difference.estimate for change in changes.values() if change.shown]
    fell, rose = min(shown, default=0) < 0, max(shown, default=0) > 0
    if fell and rose:
        return "along_the_trade_off"
    if (fell and right.high < 0) or (rose and right.low > 0):
        return "at_odds"
    return "better" if fell else "worse" if rose else "none_shown"


def _changes(pairs: PairedCompletions) -> dict[str, RateChange]:
    """Return the change of each rate, with p-values corrected over the rates (Holm 1979)."""
    hits = {name: pairs.hits(label, counts) for name, (label, counts) in RATES.items()}
    p = [mcnemar(nets) for nets, *_ in hits.values()]
    changes = {}
    for (name, (_, squares, n, both, stopped, began)), own, corrected in zip(hits.items(), p, holm(p), strict=True):
        rose = tango_of_shares(began / n, stopped / n, n * n / squares) if n else NO_DIFFERENCE
        changes[name] = RateChange(
            first=(both + stopped) / n if n else None,
            second=(both + began) / n if n else None,
            difference=replace(rose, n=n),
            stopped=stopped,
            began=began,
            mcnemar_p=own,
            mcnemar_p_holm=corrected,
            shown=corrected < 0.05,
        )
    return changes


def mcnemar(nets: Mapping[int, int]) -> float:
    """Return the exact two-sided p-value, under the null that each group is equally likely to change either way.

    With groups of one prompt this is McNemar's test (1947). Larger groups change as a whole (a sign-flip test of the
    sum), so that a large group has the same weight in the test as in the difference. No change gives 1. `nets`: net
    change in hits: number of groups with that change.
    """
    sizes = Counter[int]()
    for net, groups in nets.items():
        sizes[abs(net)] += groups if net else 0
    total = sum(size * groups for size, groups in sizes.items())
    if not total:
        return 1.0
    chance = np.ones(1)  # probability of each number of hits among `total` that go up
    for size, groups in sorted(sizes.items()):
        if groups:
            up = np.zeros(size * groups + 1)
            k = np.arange(groups + 1)  # each is as likely to go up as down
            up[::size] = np.exp(gammaln(groups + 1) - gammaln(k + 1) - gammaln(groups - k + 1) - groups * np.log(2))
            if len(chance) * len(up) < 1e8:  # a Fourier transform leaves rounding errors in the far tail
                chance = np.convolve(chance, up)
            else:
                from scipy.signal import fftconvolve  # takes long to import

                chance = np.clip(fftconvolve(chance, up), 0, None)
    moved = abs(sum(net * groups for net, groups in nets.items()))
    return min(1.0, float(chance[np.abs(2 * np.arange(total + 1) - total) >= moved].sum()))


class PairedCompletions:
    """Completions of the same prompt and sample in two ledgers, tables `a` and `b` of one connection.

    Groups are those of the ledger with fewer groups, so that the order of the ledgers does not matter.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.execute("DROP TABLE IF EXISTS pairs")
        connection.execute(f"CREATE TABLE pairs AS SELECT {COLUMNS} FROM a JOIN b ON {JOINED}")
        [(n_a, n_b)] = self.query("SELECT COUNT(DISTINCT grp_a), COUNT(DISTINCT grp_b) FROM pairs")
        self.group = "grp_a" if n_a <= n_b else "grp_b"

    def query(self, sql: str) -> list[Any]:
        return self.connection.execute(sql).fetchall()

    def counts(self) -> dict[str, int]:
        """Count the pairs that meet each condition of MATCHED."""
        totals = ", ".join(f"CAST(TOTAL({condition}) AS INTEGER)" for condition in MATCHED.values())
        return dict(zip(MATCHED, self.query(f"SELECT {totals} FROM pairs")[0], strict=True))

    def alone(self, mine: Ledger, other: Ledger) -> int:
        """Count the completions of one ledger without a counterpart in the other."""
        there = f"SELECT 1 FROM {other.name} y WHERE y.counted AND y.id = x.id AND y.sample = x.sample"
        return int(self.query(f"SELECT COUNT(*) FROM {mine.name} x WHERE counted AND NOT EXISTS ({there})")[0][0])

    def hits(self, label: str, actions: Set[str]) -> tuple[dict[int, int], float, int, int, int, int]:
        """Count hits in pairs of one label, judged in both.

        Returns:
            The number of groups by net change in hits (second minus first), the sum of their squared sizes, and the
            number of pairs: all, with a hit in both, only in the first, only in the second.
        """
        hit = f"IN ({', '.join(repr(action) for action in sorted(actions))})"
        judged = f"SELECT {self.group} AS grp, first {hit} AS x, second {hit} AS y FROM pairs "
        judged += f"WHERE same_label AND label = '{label}' AND {BOTH}"
        sums = "COUNT(*) AS n, TOTAL(x AND y) AS kept, TOTAL(x AND NOT y) AS stopped, TOTAL(y AND NOT x) AS began"
        groups = f"SELECT SUM(y) - SUM(x) AS net, {sums} FROM ({judged}) GROUP BY grp"
        totals = "TOTAL(n * n), TOTAL(n), TOTAL(kept), TOTAL(stopped), TOTAL(began)"
        rows = self.query(f"SELECT net, COUNT(*), {totals} FROM ({groups}) GROUP BY 1")
        squares, *counts = (sum(column) for column in zip(*(row[2:] for row in rows), strict=True)) if rows else [0] * 5
        n, both, stopped, began = map(int, counts)
        return {net: n_groups for net, n_groups, *_ in rows}, float(squares), n, both, stopped, began

    def changes(self) -> tuple[dict[ScoredChange, int], GroupOverlap]:
        """Return counts of the first and second actions by right action, and the group overlap of right actions."""
        rows = self.query(
            f"SELECT right_action, acceptable, first, second, COUNT(*) FROM pairs WHERE {RIGHT} GROUP BY 1, 2, 3, 4"
        )
        counts = {(right, tuple(x for x in also.split("|") if x), old, new): n for right, also, old, new, n in rows}
        source = f"(SELECT right_action, {self.group} AS grp FROM pairs WHERE {RIGHT})"
        return counts, group_overlap(self.connection, source)

    def transitions(self) -> tuple[Transition, ...]:
        """Count changes from one action to another, by label, the most frequent first."""
        rows = self.query(
            "SELECT label, COALESCE(first, 'unjudged'), COALESCE(second, 'unjudged'), COUNT(*) FROM pairs "
            "WHERE same_label AND first IS NOT second GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3"
        )
        return tuple(Transition(label=label, first=first, second=second, n=n) for label, first, second, n in rows)

    def flips(self) -> tuple[Flip, ...]:
        """Return the completions whose action changed, in the first run's order."""
        rows = self.query(
            "SELECT a.id, a.sample, a.label, COALESCE(a.text, b.text), a.action, b.action, a.evidence, b.evidence "
            "FROM pairs JOIN a ON a.rowid = row_a JOIN b ON b.rowid = row_b "
            "WHERE same_label AND first IS NOT second ORDER BY row_a"
        )
        return tuple(Flip.model_validate(dict(zip(Flip.model_fields, row, strict=True))) for row in rows)
