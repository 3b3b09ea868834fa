"""A comparison in text: on the terminal, in Markdown and CSV, and its `--fail-if` conditions as JUnit test cases."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from math import isfinite
from xml.etree import ElementTree

from extract.table import Table, markdown, print_blocks
from probes.statistics.intervals import Estimate
from scoring.compare.comparison import ComparedRun, Comparison, ScoredRun
from scoring.compare.fail_if import Condition
from scoring.wording import RATE_MEANING

# run, rate, its value in both runs, the change, McNemar's p (Holm-corrected over the rates), n
ChangeRow = tuple[str, str, float | None, float | None, Estimate, float | None, int]
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
        again = (one for one in (first, run) if one.conflicting)
        notes = (f"Note: {one.conflicting} completions of {one.file} repeat an earlier id; " for one in again)
        judged = judges_line(first, run)
        print_blocks(
            [changes_table(title, run), *judged, *_lines(run), *(f"{note}they are matched in order." for note in notes)]
        )


def judges_line(first: ScoredRun, second: ScoredRun) -> list[str]:
    """Return a line that names the judge of two runs, or warns that there are two; none where one is not known."""
    if first.judge is None or second.judge is None:
        return []
    if first.judge == second.judge:
        return [f"Judged by {first.judge}."]
    return [
        f"Note: judged by {first.judge} and by {second.judge}, so that a part of each change may be of the judges; "
        "judge both alike with: refusal score RUN --judge NAME --out DIR"
    ]


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
    lines += [f"Note: {n} completions {words}." for name, words in NOTES.items() if (n := getattr(run.matched, name))]
    shown = run.transitions[:SHOWN_TRANSITIONS]
    counted = ", ".join(f"{t.label or 'unlabelled'}: {t.first} → {t.second} {t.n}" for t in shown)
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


def _change_rows(comparison: Comparison) -> Iterator[ChangeRow]:
    """Yield each rate and the right-action score of each later run; n is 0 where nothing was judged in both."""
    for run in comparison.comparisons:
        for rate in RATE_MEANING:
            own, n = run.changes[rate], run.changes[rate].difference.n or 0
            yield run.run, rate, own.first, own.second, own.difference, own.mcnemar_p_holm if n else None, n
        first, second = comparison.first.right_action, run.right_action
        yield run.run, "right_action", first.estimate, second.estimate, run.right_action_change, None, second.n or 0


def to_csv(comparison: Comparison) -> str:
    """Return the rows as CSV with a header; shares are from 0 to 1, unknown numbers are empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow("run rate first second change change_low change_high p n".split())
    for run, rate, first, second, change, p, n in _change_rows(comparison):
        limits = change.limits() if change.known else (None,) * 3
        writer.writerow([run, rate, *(v if _known(v) else None for v in (first, second, *limits)), p, n])
    return sink.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """Return a table for a pull request."""
    rows = []
    for run, rate, first, second, change, p, n in _change_rows(comparison):
        spec = ".1%" if rate in RATE_MEANING else ".2f"
        values = [f"{value:{spec}}" if _known(value) else "unknown" for value in (first, second)]
        values.append(f"{change:+{spec}}" if change.known else "unknown")
        rows.append([run, rate, *values, "" if p is None else f"{p:.2g}", str(n)])
    columns = ["run", "rate", "first", "second", "change (95 %)", "p", "n"]
    title = "### Compared with " + comparison.first.run.replace("|", "\\|")
    return f"{title}\n\n{markdown(Table('', columns, rows))}\n"


def _known(value: float | None) -> bool:
    return value is not None and isfinite(value)


def to_junit(comparison: Comparison, conditions: Sequence[Condition]) -> str:
    """Return a JUnit report: a test case for each condition of each later run, which fails where it holds.

    A condition whose value is unknown is an error, not a success.
    """
    suites = ElementTree.Element("testsuites")
    for run in comparison.comparisons:
        suite = ElementTree.SubElement(suites, "testsuite", name=f"{run.run} against {comparison.first.run}")
        for condition in conditions:
            case = ElementTree.SubElement(suite, "testcase", classname=run.run, name=condition.text)
            met, value = condition.met(run), condition.value(run)
            if met is None:
                ElementTree.SubElement(case, "error", message="the value is not known: nothing was judged")
            elif met:
                ElementTree.SubElement(case, "failure", message=f"holds: it is {value:.4g}")
        for name, tag in (("tests", "testcase"), ("failures", ".//failure"), ("errors", ".//error")):
            suite.set(name, str(len(suite.findall(tag))))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
