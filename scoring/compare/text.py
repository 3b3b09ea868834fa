"""A comparison in text: on the terminal, in Markdown and CSV, and its `--fail-if` conditions as JUnit test cases."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple
from xml.etree import ElementTree

from extract.table import Table, markdown, print_blocks
from probes.statistics.intervals import Estimate
from scoring.compare.comparison import ComparedRun, Comparison, ScoredRun
from scoring.compare.fail_if import Condition
from scoring.wording import RATE_MEANING

SHOWN_FLIPS = 10
SHOWN_TRANSITIONS = 6
MOVES = {
    "better": "Fewer mistakes, without a trade-off",
    "worse": "More mistakes, without a trade-off",
    "along_the_trade_off": "A trade-off: one kind of mistake fell and another rose",
    "at_odds": "The rates and the right-action score disagree: see the changes of action below",
    "none_shown": "No change shown",
}
NOTES = {  # text for each count in `matched`
    "only_in_first": "are only in the first run",
    "only_in_second": "are only in the second run",
    "label_differs": "are left out, since the two runs label them differently",
    "text_differs": "have different prompt texts",
    "right_action_differs": "are left out of the right-action score, since the two runs differ in the right action",
    "unjudged_in_first": "are unjudged in the first run",
    "unjudged_in_second": "are unjudged in the second run",
}


def print_comparison(comparison: Comparison) -> None:
    """Print each later run compared with the first."""
    first = comparison.first
    for run in comparison.comparisons:
        title = f"{first.file} → {run.file}: {run.matched.prompts} completions of the same prompts"
        print_blocks([changes_table(title, run), *_lines(run), *_repeated_ids(first, run)])


def changes_table(title: str, run: ComparedRun, first: str = "first", second: str = "second") -> Table:
    """Return the change of each rate with its test; first and second are the names of both runs in the head."""
    rows = []
    for key, meaning in RATE_MEANING.items():
        change = run.changes[key]
        if not (n := change.difference.n):
            rows.append([meaning, "none judged", "", "", "", "0"])
            continue
        p = f"{change.mcnemar_p_holm:.2g}" + (" *" if change.shown else "")
        shares = f"{change.first:.1%}", f"{change.second:.1%}"
        rows.append([meaning, *shares, f"{change.difference:+.1%}", p, str(n)])
    if run.right_action_change.known:
        rows.append(["right-action score", "", "", f"{run.right_action_change:+.2f}", "", ""])
    return Table(title, ["", first, second, "change (95 %)", "McNemar p", "n"], rows)


def _lines(run: ComparedRun) -> list[str]:
    lines = [f"{MOVES[run.move]}: {_reasons(run)}."]
    counts = {words: getattr(run.matched, name) for name, words in NOTES.items()}
    lines += [f"Note: {n} completions {words}." for words, n in counts.items() if n]
    counted = ", ".join(
        f"{t.label or 'unlabelled'}: {t.first} → {t.second} {t.n}" for t in run.transitions[:SHOWN_TRANSITIONS]
    )
    if run.flips:
        more = ", …" if len(run.transitions) > SHOWN_TRANSITIONS else ""
        lines.append(f"{len(run.flips)} completions changed their action ({counted}{more}):")
    for flip in run.flips[:SHOWN_FLIPS]:
        text = " ".join((flip.text or "").split())
        lines.append(
            f"  {flip.id} ({flip.label or 'unlabelled'}): {flip.first or 'unjudged'} → "
            f"{flip.second or 'unjudged'}: {text[:90]}"
        )
    if len(run.flips) > SHOWN_FLIPS:
        lines.append(f"  … and {len(run.flips) - SHOWN_FLIPS} more; --out DIR writes them all to flips.jsonl")
    return lines


def _repeated_ids(*runs: ScoredRun) -> Iterator[str]:
    for run in runs:
        if run.conflicting:
            yield f"Note: {run.conflicting} completions of {run.file} repeat an earlier id; they are matched in order."


def _reasons(run: ComparedRun) -> str:
    """Return which rates fell or rose, and the upper limit of the change of the others."""
    shown, open_ = [], []
    for name in RATE_MEANING:
        change = run.changes[name]
        if change.shown:
            shown.append(f"{name} {'fell' if change.difference.estimate < 0 else 'rose'}")
        elif change.difference.n and change.difference.high > 0:
            open_.append(f"{name} {change.difference.high:.1%}")
    if open_:
        shown.append(f"not shown to change, and may have risen by up to: {', '.join(open_)}")
    return "; ".join(shown) or "no prompt was judged in both runs"


class ChangeRow(NamedTuple):
    """One rate of one later run; unknown numbers are None. Shares are from 0 to 1."""

    run: str
    rate: str
    first: float | None
    second: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    p: float | None  # McNemar's, corrected over the rates (Holm)
    n: int


def change_rows(comparison: Comparison) -> Iterator[ChangeRow]:
    """Yield each rate and the right-action score of each later run."""
    for run in comparison.comparisons:
        for rate in RATE_MEANING:
            own = run.changes[rate]
            n = own.difference.n or 0
            yield _row(run, rate, own.first, own.second, own.difference, own.mcnemar_p_holm if n else None, n)
        first, second, change = comparison.first.right_action, run.right_action, run.right_action_change
        yield _row(run, "right_action", first.estimate, second.estimate, change, None, second.n or 0)


def to_csv(comparison: Comparison) -> str:
    """Return the lines as CSV with a header; unknown numbers are empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(ChangeRow._fields)
    writer.writerows(change_rows(comparison))
    return sink.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """Return a table for a pull request."""
    rows = []
    for row in change_rows(comparison):
        share = row.rate in RATE_MEANING
        change = _number(row.change, share, signed=True)
        if row.change_low is not None and row.change_high is not None:
            change += f" [{', '.join(_number(v, share, signed=True) for v in (row.change_low, row.change_high))}]"
        p = "" if row.p is None else f"{row.p:.2g}"
        rows.append([row.run, row.rate, _number(row.first, share), _number(row.second, share), change, p, str(row.n)])
    columns = ["run", "rate", "first", "second", "change (95 %)", "p", "n"]
    title = "### Compared with " + comparison.first.run.replace("|", "\\|")
    return f"{title}\n\n{markdown(Table('', columns, rows))}\n"


def to_junit(comparison: Comparison, conditions: Sequence[Condition]) -> str:
    """Return a JUnit report: a test case for each condition of each later run, which fails where it holds.

    A condition whose value is unknown is an error, not a success.
    """
    suites = ElementTree.Element("testsuites")
    for run in comparison.comparisons:
        suite = ElementTree.SubElement(suites, "testsuite", name=f"{run.run} against {comparison.first.run}")
        counts = {"tests": len(conditions), "failures": 0, "errors": 0}
        for condition in conditions:
            case = ElementTree.SubElement(suite, "testcase", classname=run.run, name=condition.text)
            met, value = condition.met(run), condition.value(run)
            if met is None:
                counts["errors"] += 1
                ElementTree.SubElement(case, "error", message="the value is not known: nothing was judged")
            elif met:
                counts["failures"] += 1
                ElementTree.SubElement(case, "failure", message=f"holds: it is {value:.4g}")
        for name, n in counts.items():
            suite.set(name, str(n))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _row(
    run: ComparedRun, rate: str, first: float | None, second: float | None, change: Estimate, p: float | None, n: int
) -> ChangeRow:
    limits = change.limits() if change.known else (None,) * 3
    values = (value if value is not None and isfinite(value) else None for value in (first, second, *limits))
    return ChangeRow(run.run, rate, *values, p=p, n=n)  # type: ignore[arg-type, misc]


def _number(value: float | None, share: bool, *, signed: bool = False) -> str:
    if value is None:
        return "unknown"
    sign = "+" if signed else ""
    return f"{value:{sign}.1%}" if share else f"{value:{sign}.2f}"
