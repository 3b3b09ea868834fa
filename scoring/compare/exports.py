"""A comparison for other programs: a table in Markdown or CSV, and `--fail-if` conditions as JUnit test cases."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple
from xml.etree import ElementTree

from probes.statistics.intervals import Estimate
from scoring.compare.comparison import ComparedRun, Comparison
from scoring.compare.fail_if import Condition
from scoring.wording import RATE_MEANING


class Line(NamedTuple):
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


def lines(comparison: Comparison) -> Iterator[Line]:
    """Yield each rate and the right-action score of each later run."""
    for run in comparison.comparisons:
        for rate in RATE_MEANING:
            yield _rate(run, rate)
        first, second, change = comparison.first.right_action, run.right_action, run.right_action_change
        yield _line(run, "right_action", first.estimate, second.estimate, change, None, second.n or 0)


def to_csv(comparison: Comparison) -> str:
    """Return the lines as CSV with a header; unknown numbers are empty."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(lines(comparison))
    return sink.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """Return a table for a pull request."""
    found = [f"### Compared with {_plain(comparison.first.run)}", ""]
    found += ["| run | rate | first | second | change (95 %) | p | n |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for line in lines(comparison):
        share = line.rate in RATE_MEANING
        numbers = [_number(value, share) for value in (line.first, line.second)]
        change = _number(line.change, share, signed=True)
        if line.change_low is not None and line.change_high is not None:
            limits = [_number(value, share, signed=True) for value in (line.change_low, line.change_high)]
            change += f" [{', '.join(limits)}]"
        p = "" if line.p is None else f"{line.p:.2g}"
        found.append(f"| {' | '.join([_plain(line.run), line.rate, *numbers, change, p, str(line.n)])} |")
    return "\n".join(found) + "\n"


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


def _rate(run: ComparedRun, rate: str) -> Line:
    change = run.changes[rate]
    n = change.difference.n
    if not n:
        return Line(run.run, rate, None, None, None, None, None, None, 0)
    return _line(run, rate, change.first, change.second, change.difference, change.mcnemar_p_holm, n)


def _line(
    run: ComparedRun, rate: str, first: float | None, second: float | None, change: Estimate, p: float | None, n: int
) -> Line:
    first, second, *limits = (
        value if value is not None and isfinite(value) else None for value in (first, second, *change.limits())
    )
    return Line(run.run, rate, first, second, *limits, p=p, n=n)  # type: ignore[arg-type, misc]


def _number(value: float | None, share: bool, *, signed: bool = False) -> str:
    if value is None:
        return "unknown"
    sign = "+" if signed else ""
    return f"{value:{sign}.1%}" if share else f"{value:{sign}.2f}"


def _plain(name: str) -> str:
    return name.replace("|", "\\|")
