"""One row a cell: verdicts, trigger share, rates with intervals; as Parquet, CSV, and a page that works offline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import yaml

from experiments.charts.blocks import Figure, figure
from experiments.charts.points import rates_by_run
from experiments.charts.specification import Row, Value, fields
from experiments.report.page.document import document, render, write_page
from experiments.report.page.leaderboard import Shown, shown_numbers
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.sweep.grid import MODEL, CellState, SweepConfig
from extract.atomic_write import atomic_path
from extract.errors import UserError
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from scoring.rates import RATES

WHEN = {"before": "without dials", "after": "with the dials"}
VERDICT = ("verdict", "basis", "trigger_verdict")
SCORED = [f"{name}_{when}" for name in (*RATES, "right_action") for when in WHEN]
ENDS = ("", "_low", "_high")
UNCOUNTED = ["trigger_share", *(f"{kind}_auroc" for kind in KINDS)]  # numbers without a number of prompts
TEXT, NUMBER, COUNT = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
MOST_DRAWN = 100  # cells in the chart; the table has all
CAPTION = "The four rates of each cell on its own test prompts, with 95 % intervals"
DRAWN = {"run": "cell", "rate": "rate", "when": "when"}
DRAWN |= {"estimate": "rate, %", "low": "from, %", "high": "to, %", "n": "n"}


def _numbers(results: RunResults) -> dict[str, Estimate]:
    """Return what has limits, by column; a run without dials has nothing with them."""
    numbers = {"trigger_share": results.triggers.share}
    for when in list(WHEN) if results.dials else ["before"]:
        rates = getattr(results.rates, when)
        numbers |= {f"{rate}_{when}": rates.of(rate) for rate in RATES}
        numbers[f"right_action_{when}"] = getattr(results.right_action, when).score
    return numbers | {f"{kind}_auroc": Estimate(site.auroc, *site.auroc_ci) for kind, site in results.sites.items()}


def _measured(results: RunResults | None) -> Row:
    """Return the columns of what a run has measured, each missing where it is not known or there is no run."""
    numbers, row = {}, dict[str, Value](dict.fromkeys(VERDICT))
    if results is not None:
        numbers = _numbers(results)
        two = results.dissociation
        row = dict(zip(VERDICT, (two.verdict, two.basis, results.triggers.verdict), strict=True))
    for name in (UNCOUNTED[0], *SCORED, *UNCOUNTED[1:]):
        number = numbers.get(name, NO_ESTIMATE)
        row |= fields(number if number.known else NO_ESTIMATE, name)
        row |= {f"{name}_n": number.n} if name in SCORED else {}
    planted = None if results is None else results.planted
    row |= {f"planted_{kind}_cosine": getattr(planted, f"{kind}_cosine", None) for kind in KINDS}
    known = (None, None) if results is None else (sum(results.prompts.values()), results.device)
    return row | dict(zip(("n_prompts", "device"), known, strict=True))


TYPES = {
    name: COUNT if name.endswith("_n") or name == "n_prompts" else NUMBER
    for name in [*_measured(None), "minutes"]
    if name not in (*VERDICT, "device")
}


def verdicts_shown(row: Row) -> list[str]:
    """Return both verdicts of a row as text, the first with its basis unless that is wording."""
    two, basis, word = (str(row[name]).replace("_", " ") for name in VERDICT)
    return [two if basis == "wording" else f"{two}, by {basis}", word]


def row_of(state: CellState) -> Row:
    """Return the row of a cell; of one that is not done, everything measured is missing."""
    results, error = None, state.failure.line if state.failure else ""
    if state.state == "done":
        try:
            results = RunResults.read(state.directory / "results.json")
        except UserError as unreadable:
            error = str(unreadable)
    name = state.cell.name
    where: dict[str, Value] = {
        "minutes": None if state.minutes is None else round(state.minutes, 2),
        "report": None if results is None else f"{name}/report.html",
        "log": f"{name}/{state.log.name}",
        "error": error or None,
    }
    return {"cell": name, "status": state.state, **state.cell.coordinates, **_measured(results), **where}


def write_table(rows: Sequence[Row], directory: Path) -> None:
    """Write table.parquet and table.csv of the rows of all cells, in which a missing value is null or empty."""
    table = pyarrow.table({name: _array([row[name] for row in rows], TYPES.get(name)) for name in rows[0]})
    for name, write in (("parquet", pyarrow.parquet.write_table), ("csv", pyarrow.csv.write_csv)):
        with atomic_path(directory / f"table.{name}") as partial:
            write(table, partial)


def _array(values: Sequence[Value], kind: pyarrow.DataType | None) -> pyarrow.Array:
    """Return a column; what has no type given has that of its values, and is text where they are unlike."""
    types = {type(value) for value in values if value is not None}
    if kind is None and types and types <= {int, float}:
        kind = COUNT if types == {int} else NUMBER
    elif kind is None and types == {bool}:
        kind = pyarrow.bool_()
    if kind is None:
        values = [None if value is None else str(value) for value in values]
    return pyarrow.array(values, type=kind or TEXT)


def write_sweep_page(sweep: SweepConfig, states: Sequence[CellState], rows: Sequence[Row], path: Path) -> None:
    """Write the page of a sweep from the states of all cells and their rows."""
    axes = list(states[0].cell.coordinates)
    done, failed = (sum(state.state == name for state in states) for name in ("done", "failed"))
    left = len(states) - done - failed
    summary = [f"{done:,} of {len(states):,} cells are done"]
    summary += [f"{failed:,} failed"] if failed else []
    summary += [f"{left:,} {'is' if left == 1 else 'are'} left"] if left else []
    page = render(
        "sweep.html",
        name=sweep.name,
        chart=_chart(rows),
        failed=[row for row in rows if row["status"] == "failed"],
        summary=", ".join(summary),
        head=["cell", *axes, "one refusal or two?", "word or intent?", "trigger share", *RATES, "minutes"],
        rows=[list(_cells(row, axes)) for row in rows],
        settings=yaml.safe_dump(sweep.model_dump(mode="json", exclude_defaults=True), sort_keys=False).strip(),
    )
    write_page(document(f"Sweep: {sweep.name}", [page]), path)


def _cells(row: Row, axes: Sequence[str]) -> Iterator[Shown]:
    link = row["report"] or (row["log"] if row["status"] == "failed" else "")
    yield Shown(str(row["cell"]), row["cell"], link=str(link))
    for axis in axes:
        whole = "null" if row[axis] is None else str(row[axis])
        yield Shown(whole.rstrip("/").rpartition("/")[2] if axis == MODEL else whole, row[axis], title=whole)
    if row["verdict"] is None:
        yield Shown(str(row["status"]), None, style="harmful label" if row["status"] == "failed" else "")
        yield Shown()
    else:
        for name, words in zip((VERDICT[0], VERDICT[-1]), verdicts_shown(row), strict=True):
            yield Shown(words, row[name])
    yield shown_numbers({"": _number(row, "trigger_share")}, percent=False)
    for rate in RATES:
        yield shown_numbers({when: _number(row, f"{rate}_{when}") for when in WHEN}, percent=True)
    yield Shown("" if row["minutes"] is None else f"{row['minutes']:.1f}", row["minutes"])


def _number(row: Row, name: str) -> Estimate:
    estimate, low, high = (nan if (value := row[f"{name}{end}"]) is None else float(value) for end in ENDS)
    n = row.get(f"{name}_n")
    return Estimate(estimate, low, high, None if n is None else int(n))


def _chart(rows: Sequence[Row]) -> Figure | None:
    """Return the chart of rates; None where no cell has any."""
    known = [row for row in rows if row["verdict"] is not None][:MOST_DRAWN]
    drawn: list[Row] = [
        {"run": row["cell"], "rate": rate, "when": shown, **fields(number)}
        for row in known
        for rate in RATES
        for when, shown in WHEN.items()
        if (number := _number(row, f"{rate}_{when}")).known
    ]
    return figure("rates", rates_by_run(drawn), CAPTION, drawn, DRAWN) if drawn else None
