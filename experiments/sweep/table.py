"""One row a cell: verdicts, trigger share, rates before and after with their intervals; as Parquet and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from experiments.charts.specification import Row, Value
from experiments.report.results import RunResults
from experiments.sweep.cells import CellState
from extract.atomic_write import atomic_path
from extract.errors import UserError
from scoring.estimate import Estimate
from scoring.rates import RATES

BEFORE, AFTER = "before", "after"
TEXT, NUMBER, COUNT = pyarrow.string(), pyarrow.float64(), pyarrow.int64()


@dataclass(frozen=True)
class Column:
    """A column of the table, read from a cell's results.json."""

    name: str
    kind: pyarrow.DataType
    of: Callable[[RunResults], Value]


def _columns() -> Iterator[Column]:
    yield Column("verdict", TEXT, lambda found: found.dissociation.verdict)
    yield Column("trigger_verdict", TEXT, lambda found: found.triggers.verdict)
    yield from _estimated("trigger_share", _trigger_share, counted=False)
    for rate in RATES:
        for when in (BEFORE, AFTER):
            yield from _estimated(f"{rate}_{when}", partial(_rate, rate=rate, when=when))
    for when in (BEFORE, AFTER):
        yield from _estimated(f"right_action_{when}", partial(_right_action, when=when))
    for kind in ("normative", "epistemic"):
        yield from _estimated(f"{kind}_auroc", partial(_auroc, kind=kind), counted=False)
    for kind in ("normative", "epistemic"):
        yield Column(f"planted_{kind}_cosine", NUMBER, partial(_planted, kind=kind))
    yield Column("n_prompts", COUNT, lambda found: sum(found.prompts.values()))
    yield Column("device", TEXT, lambda found: found.device)


def _estimated(name: str, of: Callable[[RunResults], Estimate], *, counted: bool = True) -> Iterator[Column]:
    """Yield the columns of a number: itself, its 95 % limits, and how many prompts it is of."""
    yield Column(name, NUMBER, lambda found: of(found).estimate)
    yield Column(f"{name}_low", NUMBER, lambda found: _where_known(of(found), "low"))
    yield Column(f"{name}_high", NUMBER, lambda found: _where_known(of(found), "high"))
    if counted:
        yield Column(f"{name}_n", COUNT, lambda found: of(found).n)


def _where_known(found: Estimate, limit: str) -> Value:
    value: float | None = None if found.estimate is None else getattr(found, limit)
    return value


def _trigger_share(found: RunResults) -> Estimate:
    low, high = found.triggers.trigger_share_ci
    return Estimate(estimate=found.triggers.trigger_share, low=low, high=high)


def _rate(found: RunResults, rate: str, when: str) -> Estimate:
    """Return a rate without the dials (before) or with them (after); a run without dials has none after."""
    if when == AFTER and not found.dials:
        return Estimate(estimate=None, low=None, high=None)
    return (found.rates.before if when == BEFORE else found.rates.after).of(rate)


def _right_action(found: RunResults, when: str) -> Estimate:
    if when == AFTER and not found.dials:
        return Estimate(estimate=None, low=None, high=None)
    return (found.right_action.before if when == BEFORE else found.right_action.after).estimate


def _auroc(found: RunResults, kind: str) -> Estimate:
    site = found.sites.get(kind)
    return (
        Estimate(estimate=None, low=None, high=None)
        if site is None
        else Estimate(estimate=site.auroc, low=site.auroc_ci[0], high=site.auroc_ci[1])
    )


def _planted(found: RunResults, kind: str) -> Value:
    cosine: float | None = getattr(found.planted, f"{kind}_cosine", None)
    return cosine


COLUMNS = tuple(_columns())


def row_of(state: CellState) -> Row:
    """Return the row of a cell; of one that is not done, everything measured is missing."""
    found, failure = None, state.failure
    if state.state == "done":
        try:
            found = RunResults.read(state.directory / "results.json")
        except UserError as error:
            return _row(state, None, str(error))
    return _row(state, found, failure.line if failure else "")


def _row(state: CellState, found: RunResults | None, error: str) -> Row:
    measured: dict[str, Value] = {column.name: None if found is None else column.of(found) for column in COLUMNS}
    report = f"{state.cell.name}/report.html"
    where: dict[str, Value] = {
        "minutes": None if state.minutes is None else round(state.minutes, 2),
        "report": report if found is not None else None,
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
