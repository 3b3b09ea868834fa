"""table.html: a page of all cells that works offline, with a table to sort and filter and the rates as a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from experiments.charts.rates import rates_by_run
from experiments.charts.specification import Row
from experiments.report.blocks import Figure, figure
from experiments.report.page.document import document, render
from experiments.report.page.sortable import Shown
from experiments.sweep.cells import CellState
from experiments.sweep.grid import MODEL, SweepConfig
from experiments.sweep.table import AFTER, BEFORE
from extract.atomic_write import atomic_file
from scoring.rates import RATES

MOST_DRAWN = 100  # cells in the chart; the table has all
CAPTION = "The four rates of each cell on its own test prompts, with 95 % intervals"
WHEN = {BEFORE: "without dials", AFTER: "with the dials"}
COLUMNS = {
    "run": "cell",
    "rate": "rate",
    "when": "when",
    "value": "rate, %",
    "low": "from, %",
    "high": "to, %",
    "n": "n",
}


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
            "value": row[name],
            "low": row[f"{name}_low"],
            "high": row[f"{name}_high"],
            "n": row[f"{name}_n"],
        }
        for row in known
        for rate in RATES
        for when in WHEN
        if row[name := f"{rate}_{when}"] is not None
    ]
    return figure("rates", rates_by_run(drawn), CAPTION, drawn, COLUMNS) if drawn else None
