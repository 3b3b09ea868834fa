"""One row a cell: verdicts, trigger share, rates with intervals; as Parquet, CSV, and a page that works offline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import yaml

from experiments.charts.blocks import Figure, figure
from experiments.charts.rates import rates_by_run
from experiments.charts.specification import Row, Value
from experiments.report.page.document import document, render
from experiments.report.page.leaderboard import Shown
from experiments.report.results import RunResults
from experiments.sweep.grid import MODEL, CellState, SweepConfig
from extract.atomic_write import atomic_file, atomic_path
from extract.errors import UserError
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from scoring.rates import RATES

BEFORE, AFTER = "before", "after"
TEXT, NUMBER, COUNT = pyarrow.string(), pyarrow.float64(), pyarrow.int64()


@dataclass(frozen=True)
class TableColumn:
    """A column of the table, read from a cell's results.json."""

    name: str
    kind: pyarrow.DataType
    of: Callable[[RunResults], Value]


def _columns() -> Iterator[TableColumn]:
    yield TableColumn("verdict", TEXT, lambda results: results.dissociation.verdict)
    yield TableColumn("trigger_verdict", TEXT, lambda results: results.triggers.verdict)
    yield from _estimated("trigger_share", _trigger_share, counted=False)
    for rate in RATES:
        for when in (BEFORE, AFTER):
            yield from _estimated(f"{rate}_{when}", partial(_rate, rate=rate, when=when))
    for when in (BEFORE, AFTER):
        yield from _estimated(f"right_action_{when}", partial(_right_action, when=when))
    for kind in ("normative", "epistemic"):
        yield from _estimated(f"{kind}_auroc", partial(_auroc, kind=kind), counted=False)
    for kind in ("normative", "epistemic"):
        yield TableColumn(f"planted_{kind}_cosine", NUMBER, partial(_planted, kind=kind))
    yield TableColumn("n_prompts", COUNT, lambda results: sum(results.prompts.values()))
    yield TableColumn("device", TEXT, lambda results: results.device)


def _estimated(name: str, of: Callable[[RunResults], Estimate], *, counted: bool = True) -> Iterator[TableColumn]:
    """Yield the columns of a number: itself, its 95 % limits, and how many prompts it is of."""
    yield TableColumn(name, NUMBER, lambda results: _where_known(of(results), "estimate"))
    yield TableColumn(f"{name}_low", NUMBER, lambda results: _where_known(of(results), "low"))
    yield TableColumn(f"{name}_high", NUMBER, lambda results: _where_known(of(results), "high"))
    if counted:
        yield TableColumn(f"{name}_n", COUNT, lambda results: of(results).n)


def _where_known(estimate: Estimate, limit: str) -> Value:
    value: float = getattr(estimate, limit)
    return value if estimate.known and np.isfinite(value) else None


def _trigger_share(results: RunResults) -> Estimate:
    return results.triggers.share


def _rate(results: RunResults, rate: str, when: str) -> Estimate:
    """Return a rate without the dials (before) or with them (after); a run without dials has none after."""
    if when == AFTER and not results.dials:
        return NO_ESTIMATE
    return (results.rates.before if when == BEFORE else results.rates.after).of(rate)


def _right_action(results: RunResults, when: str) -> Estimate:
    if when == AFTER and not results.dials:
        return NO_ESTIMATE
    return (results.right_action.before if when == BEFORE else results.right_action.after).score


def _auroc(results: RunResults, kind: str) -> Estimate:
    site = results.sites.get(kind)
    return NO_ESTIMATE if site is None else Estimate(site.auroc, *site.auroc_ci)


def _planted(results: RunResults, kind: str) -> Value:
    cosine: float | None = getattr(results.planted, f"{kind}_cosine", None)
    return cosine


COLUMNS = tuple(_columns())


def row_of(state: CellState) -> Row:
    """Return the row of a cell; of one that is not done, everything measured is missing."""
    results, failure = None, state.failure
    if state.state == "done":
        try:
            results = RunResults.read(state.directory / "results.json")
        except UserError as error:
            return _row(state, None, str(error))
    return _row(state, results, failure.line if failure else "")


def _row(state: CellState, results: RunResults | None, error: str) -> Row:
    measured: dict[str, Value] = {column.name: None if results is None else column.of(results) for column in COLUMNS}
    report = f"{state.cell.name}/report.html"
    where: dict[str, Value] = {
        "minutes": None if state.minutes is None else round(state.minutes, 2),
        "report": report if results is not None else None,
        "log": f"{state.cell.name}/{state.log.name}",
        "error": error or None,
    }
    return {"cell": state.cell.name, "status": state.state, **state.cell.coordinates, **measured, **where}


def write_table(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write table.parquet and table.csv of the rows of all cells, in which a missing value is null or empty."""
    kinds = {column.name: column.kind for column in COLUMNS} | {"minutes": NUMBER}
    table = pyarrow.table({name: _array([row[name] for row in rows], kinds.get(name)) for name in rows[0]})
    paths = [directory / "table.parquet", directory / "table.csv"]
    with atomic_path(paths[0]) as partial:
        pyarrow.parquet.write_table(table, partial)
    with atomic_path(paths[1]) as partial:
        pyarrow.csv.write_csv(table, partial)
    return paths


def _array(values: Sequence[Value], kind: pyarrow.DataType | None) -> pyarrow.Array:
    """Return a column; of an axis with values of unlike kinds as text."""
    if kind is None:
        kinds = {bool if isinstance(v, bool) else type(v) for v in values if v is not None}
        known: dict[frozenset[type], pyarrow.DataType] = {
            frozenset({bool}): pyarrow.bool_(),
            frozenset({int}): COUNT,
            frozenset({float}): NUMBER,
            frozenset({int, float}): NUMBER,
        }
        kind = known.get(frozenset(kinds), TEXT)
    if kind == TEXT:
        values = [value if value is None or isinstance(value, str) else str(value) for value in values]
    return pyarrow.array(values, type=kind)


MOST_DRAWN = 100  # cells in the chart; the table has all
CAPTION = "The four rates of each cell on its own test prompts, with 95 % intervals"
WHEN = {BEFORE: "without dials", AFTER: "with the dials"}
DRAWN = {"run": "cell", "rate": "rate", "when": "when"}
DRAWN |= {"estimate": "rate, %", "low": "from, %", "high": "to, %", "n": "n"}


def write_page(sweep: SweepConfig, states: Sequence[CellState], rows: Sequence[Row], path: Path) -> None:
    """Write the page of a sweep.

    Args:
        states: of all cells.
        rows: of the table, in the same order.
    """
    axes = list(states[0].cell.coordinates)
    done = sum(state.state == "done" for state in states)
    failed = [(row, state) for row, state in zip(rows, states, strict=True) if state.state == "failed"]
    page = render(
        "sweep.html",
        name=sweep.name,
        chart=_chart(rows),
        failed=[row for row, _ in failed],
        summary=_summary(len(states), done, len(failed)),
        head=["cell", *axes, "one refusal or two?", "word or intent?", "trigger share", *RATES, "minutes"],
        rows=[list(_cells(row, axes)) for row in rows],
        settings=yaml.safe_dump(sweep.model_dump(mode="json", exclude_defaults=True), sort_keys=False).strip(),
    )
    with atomic_file(path) as sink:
        sink.write(document(f"Sweep: {sweep.name}", [page]).encode("utf-8", "backslashreplace"))


def _summary(total: int, done: int, failed: int) -> str:
    left = total - done - failed
    parts = [f"{done:,} of {total:,} cells are done"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{left:,} {'is' if left == 1 else 'are'} left"] if left else []
    return ", ".join(parts)


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
        for name in ("verdict", "trigger_verdict"):
            yield Shown(str(row[name]).replace("_", " "), row[name])
    yield _estimates(row, {"trigger_share": ""}, 1.0, "{:.2f}", "[{:.2f}, {:.2f}]")
    for rate in RATES:
        yield _estimates(row, {f"{rate}_{when}": when for when in WHEN}, 100.0, "{:.1f} %", "[{:.1f}, {:.1f}]")
    yield Shown("" if row["minutes"] is None else f"{row['minutes']:.1f}", row["minutes"])


def _estimates(row: Row, names: Mapping[str, str], scale: float, estimate: str, interval: str) -> Shown:
    """Return estimates with their intervals; sorted by the first.

    Args:
        names: of the columns, each with the CSS class of its line.
    """
    lines = []
    for name, style in names.items():
        value, *limits = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
        if value is not None:
            ends = interval.format(*(scale * float(end) for end in limits if end is not None))
            lines.append((style, estimate.format(scale * float(value)), ends))
    return Shown(by=row[next(iter(names))], estimates=lines)


def _chart(rows: Sequence[Row]) -> Figure | None:
    """Return the chart of rates; None where no cell has any."""
    known = [row for row in rows if row["verdict"] is not None][:MOST_DRAWN]
    drawn: list[Row] = [
        {
            "run": row["cell"],
            "rate": rate,
            "when": WHEN[when],
            "estimate": row[name],
            "low": row[f"{name}_low"],
            "high": row[f"{name}_high"],
            "n": row[f"{name}_n"],
        }
        for row in known
        for rate in RATES
        for when in WHEN
        if row[name := f"{rate}_{when}"] is not None
    ]
    return figure("rates", rates_by_run(drawn), CAPTION, drawn, DRAWN) if drawn else None
