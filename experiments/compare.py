"""`refusal compare`: the same prompts answered twice. What changed, whether chance explains it, and in which direction.

Every later run is compared with the first, prompt by prompt. A change of a rate is *shown* where McNemar's test says so
after Holm's correction over the three rates and `uncertain_refused`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import binomtest

from experiments.ledger import Ledger, workspace
from experiments.right_action import Adjacency, score_change
from experiments.scorecard import scorecard
from experiments.scored_source import enter
from experiments.scoring import RATES
from extract.errors import UserError
from extract.whole import unwritable, written_whole
from probes.intervals import Interval, paired_difference_of_counts

Move = Literal["better", "worse", "along_the_trade_off", "none_shown"]
JOINED = "a.id = b.id AND a.sample = b.sample AND a.counted AND b.counted"
SAME = "a.label IS b.label"


@dataclass(frozen=True)
class Change:
    """How one rate changed on the prompts that both runs judged: fourfold counts, difference, McNemar's p."""

    both: int
    only_first: int
    only_second: int
    neither: int
    difference: Interval  # second minus first
    p: float
    p_holm: float = float("nan")

    @property
    def shown(self) -> bool:
        """Whether chance is an unlikely explanation (5 %, corrected over the rates)."""
        return self.p_holm < 0.05


def compare(paths: Sequence[Path], credits: Adjacency) -> dict[str, Any]:
    """Return the comparison of each later run with the first.

    Raises:
        UserError: a run cannot be read, or shares no labelled prompt with the first.
    """
    with workspace() as connection:
        first = Ledger(connection, "a")
        record: dict[str, Any] = {"first": _described(first, paths[0], credits), "comparisons": []}
        for path in paths[1:]:
            connection.execute("DROP TABLE IF EXISTS b")
            second = Ledger(connection, "b")
            described = _described(second, path, credits)
            record["comparisons"].append(described | _compared(first, credits, paths[0], path))
    return record


def write_comparison(record: dict[str, Any], out: Path) -> None:
    """Write comparison.json, and flips.jsonl with one flipped prompt a line."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from None
    brief = record | {"comparisons": [{k: v for k, v in one.items() if k != "flips"} for one in record["comparisons"]]}
    flips = [{"run": one["run"]} | flip for one in record["comparisons"] for flip in one["flips"]]
    lines = "".join(json.dumps(flip, ensure_ascii=False) + "\n" for flip in flips)
    for name, text in (("comparison.json", json.dumps(brief, indent=1) + "\n"), ("flips.jsonl", lines)):
        with written_whole(out / name, out / f"{name}.partial") as sink:
            sink.write(text.encode("utf-8", "replace"))


def _described(ledger: Ledger, path: Path, credits: Adjacency) -> dict[str, Any]:
    file = enter(path, ledger)
    card = scorecard(ledger, credits)
    return {
        "run": str(path),
        "file": file,
        "n": card["n"],
        "rates": card["rates"],
        "right_action": card["right_action"],
    }


def _compared(ledger: Ledger, credits: Adjacency, first: Path, second: Path) -> dict[str, Any]:
    database = ledger.connection
    matched = _matched(ledger)
    if not matched["prompts"]:
        raise UserError(f"{first} and {second} share no labelled prompt ids; compare answers to the same prompts")
    changes = _holm({name: _change(ledger, label, counts) for name, (label, counts) in RATES.items()})
    rows = database.execute(
        f"SELECT a.right_action, a.acceptable, a.action, b.action, COUNT(*) FROM a JOIN b ON {JOINED} AND {SAME} "
        "WHERE a.right_action IS NOT NULL AND a.action IS NOT NULL AND b.action IS NOT NULL GROUP BY 1, 2, 3, 4"
    )
    counts = {(right, tuple(x for x in also.split("|") if x), old, new): n for right, also, old, new, n in rows}
    groups = database.execute(
        f"SELECT a.right_action, COUNT(DISTINCT a.grp) FROM a JOIN b ON {JOINED} AND {SAME} "
        "WHERE a.right_action IS NOT NULL AND a.action IS NOT NULL AND b.action IS NOT NULL GROUP BY 1"
    )
    right = score_change(counts, dict(groups.fetchall()), credits)
    return {
        "matched": matched,
        "changes": {name: _change_record(change) for name, change in changes.items()},
        "right_action_change": None if np.isnan(right.estimate) else right.estimate,
        "right_action_change_ci": None if np.isnan(right.estimate) else [right.low, right.high],
        "move": move(changes),
        "transitions": _transitions(ledger),
        "flips": _flips(ledger),
    }


def move(changes: dict[str, Change]) -> Move:
    """Say where the change leads on the plane of missed harm, over-refusal and overconfidence.

    `better`: something fell and nothing rose (off the trade-off, towards the origin); `worse`: the reverse;
    `along_the_trade_off`: something fell while something rose; `none_shown`: chance explains all of it. All counts are
    mistakes, so falling is good. `uncertain_refused` is a mistake too: refusing buys low overconfidence falsely.
    """
    fell = any(change.shown and change.difference.estimate < 0 for change in changes.values())
    rose = any(change.shown and change.difference.estimate > 0 for change in changes.values())
    if fell and rose:
        return "along_the_trade_off"
    return "better" if fell else "worse" if rose else "none_shown"


def _matched(ledger: Ledger) -> dict[str, int]:
    """Count what both have, what one lacks, what one of them calls something else, and what is not judged."""

    def count(sql: str) -> int:
        return int(ledger.connection.execute(sql).fetchone()[0])

    missing = (
        "SELECT COUNT(*) FROM {0} x WHERE counted AND NOT EXISTS "
        "(SELECT 1 FROM {1} y WHERE y.counted AND y.id = x.id AND y.sample = x.sample)"
    )
    joined = f"SELECT COUNT(*) FROM a JOIN b ON {JOINED}"
    return {
        "prompts": count(f"{joined} AND {SAME} WHERE a.label IS NOT NULL"),
        "only_in_first": count(missing.format("a", "b")),
        "only_in_second": count(missing.format("b", "a")),
        "label_differs": count(f"{joined} WHERE a.label IS NOT b.label"),
        "text_differs": count(f"{joined} WHERE a.text IS NOT NULL AND b.text IS NOT NULL AND a.text != b.text"),
        "unjudged_in_first": count(f"{joined} AND {SAME} WHERE a.label IS NOT NULL AND a.action IS NULL"),
        "unjudged_in_second": count(f"{joined} AND {SAME} WHERE a.label IS NOT NULL AND b.action IS NULL"),
    }


def _change(ledger: Ledger, label: str, counts: frozenset[str]) -> Change:
    """Compare one rate. The unit of McNemar's test is the group: the sign of its net change."""
    hit = f"IN ({', '.join(repr(action) for action in sorted(counts))})"
    pairs = (
        f"SELECT a.grp AS grp, a.action {hit} AS x, b.action {hit} AS y FROM a JOIN b ON {JOINED} AND {SAME} "
        f"WHERE a.label = '{label}' AND a.action IS NOT NULL AND b.action IS NOT NULL"
    )
    both, only_first, only_second, neither, groups = (
        int(n) for n in ledger.connection.execute(
            f"SELECT TOTAL(x AND y), TOTAL(x AND NOT y), TOTAL(y AND NOT x), TOTAL(NOT x AND NOT y), "
            f"COUNT(DISTINCT grp) FROM ({pairs})"
        ).fetchone()
    )  # fmt: skip
    up, down = ledger.connection.execute(
        f"SELECT TOTAL(net > 0), TOTAL(net < 0) FROM (SELECT SUM(y) - SUM(x) AS net FROM ({pairs}) GROUP BY grp)"
    ).fetchone()
    fell = paired_difference_of_counts(both, only_second, only_first, neither, groups or None)
    return Change(both, only_first, only_second, neither, fell, mcnemar(int(up), int(down)))


def mcnemar(up: int, down: int) -> float:
    """Return the exact two-sided p of McNemar's test (1947): of those that changed, half each way. None gives 1."""
    return float(binomtest(up, up + down).pvalue) if up + down else 1.0


def _holm(changes: dict[str, Change]) -> dict[str, Change]:
    """Correct the p-values of all rates together (Holm 1979)."""
    order = sorted(changes, key=lambda name: changes[name].p)
    corrected, highest = {}, 0.0
    for place, name in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * changes[name].p))
        corrected[name] = highest
    return {
        name: Change(c.both, c.only_first, c.only_second, c.neither, c.difference, c.p, corrected[name])
        for name, c in changes.items()
    }


def _change_record(change: Change) -> dict[str, Any]:
    n = change.both + change.only_first + change.only_second + change.neither
    known = not np.isnan(change.difference.estimate)
    return {
        "first": (change.both + change.only_first) / n if n else None,
        "second": (change.both + change.only_second) / n if n else None,
        "difference": change.difference.estimate if known else None,
        "difference_ci": [change.difference.low, change.difference.high],
        "n": n,
        "stopped": change.only_first,
        "began": change.only_second,
        "mcnemar_p": change.p,
        "mcnemar_p_holm": change.p_holm,
        "shown": change.shown,
    }


def _transitions(ledger: Ledger) -> list[dict[str, Any]]:
    rows = ledger.connection.execute(
        f"SELECT a.label, COALESCE(a.action, 'unjudged'), COALESCE(b.action, 'unjudged'), COUNT(*) FROM a JOIN b "
        f"ON {JOINED} AND {SAME} WHERE a.action IS NOT b.action GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3"
    )
    return [dict(zip(("label", "first", "second", "n"), row, strict=True)) for row in rows]


def _flips(ledger: Ledger) -> list[dict[str, Any]]:
    names = ("id", "sample", "label", "text", "first", "second", "first_evidence", "second_evidence")
    rows = ledger.connection.execute(
        "SELECT a.id, a.sample, a.label, COALESCE(a.text, b.text), a.action, b.action, a.evidence, b.evidence "
        f"FROM a JOIN b ON {JOINED} AND {SAME} WHERE a.action IS NOT b.action ORDER BY a.rowid"
    )
    return [dict(zip(names, row, strict=True)) for row in rows]
