"""`refusal sweep`: a grid of models, prompt sets and keys, one run a cell, one table over all of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from extract.run_directory import is_run
from refusal.cli.options import (
    CPU_BUDGET,
    NO_BUDGET,
    NO_OVERRIDES,
    Budget,
    GpusPerWorker,
    Json,
    Quiet,
    Ray,
    RunOut,
    Set,
    minutes,
)
from refusal.cli.program import program, resumable

if TYPE_CHECKING:
    from experiments.charts.specification import Row
    from experiments.sweep.grid import CellState, SweepConfig
    from experiments.sweep.run import Places

RATES_SHOWN = ("over_refusal", "missed_harm", "overconfidence")  # on the screen; the files have all


def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP", help="A YAML file of the grid, e.g. configs/sweeps/organisms.yaml.")
    ],
    overrides: Set = NO_OVERRIDES,
    out: RunOut = None,
    as_json: Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, done and left; run nothing.")] = False,
    budget: Budget = None,
    ray: Ray = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Cells at a time: one by default; with --ray as many as have room."),
    ] = None,
    gpus_per_worker: GpusPerWorker = None,
    quiet: Quiet = False,
) -> None:
    """Run every combination of models, prompt sets and keys; write one table of verdicts and rates.

    Each cell is a run of its own in DIR/CELL, in a process of its own: one that fails is named at the end with its
    log, and the others are run. The same command goes on where it stopped, and runs failed cells again.

    Example: refusal sweep configs/sweeps/organisms.yaml --dry-run

    Example: refusal sweep configs/sweeps/organisms.yaml --workers 2

    Example: refusal sweep configs/sweeps/organisms.yaml --ray --gpus-per-worker 0.5
    """
    with resumable():
        places = _places(ray, workers, gpus_per_worker)
        code = _sweep(file, overrides, out, budget, places, as_json=as_json, dry_run=dry_run, quiet=quiet)
    raise typer.Exit(code)


def _places(ray: str | None, workers: int | None, gpus_per_worker: float | None) -> Places:
    from experiments.cluster.connection import WorkersWanted
    from experiments.sweep.run import Places

    if ray is not None:
        return Places(ray=WorkersWanted(ray, workers, gpus_per_worker))
    if gpus_per_worker is not None:
        raise UserError("--gpus-per-worker is for Ray workers; give --ray, too")
    return Places(workers or 1)


def _sweep(
    file: Path,
    overrides: Sequence[str],
    out: Path | None,
    budget: str | None,
    places: Places,
    *,
    as_json: bool,
    dry_run: bool,
    quiet: bool,
) -> int:
    import yaml

    from experiments.run.run_lock import RunLock
    from experiments.sweep.grid import cells_of, load_sweep, state_of
    from experiments.sweep.run import run_cells
    from experiments.sweep.table import row_of, write_sweep_page, write_table
    from extract.atomic_write import make_folder, write_text
    from extract.progress import Reporter
    from extract.yaml_file import key_and_value
    from refusal.cli.target import load_target

    given = dict(key_and_value("--set", override, "dissociate.margin=0.2") for override in overrides)
    sweep = load_sweep(file, given)
    budget = budget or sweep.budget
    cells = cells_of(sweep, file, lambda target, given: load_target(target, given)[0])
    directory, cut_to = out or Path("runs") / sweep.name, _cut_to(budget, sweep)
    if is_run(directory):
        raise UserError(f"{directory} is a run's directory; choose another with --out")
    states = [state_of(cell, directory / cell.name, cut_to) for cell in cells]
    if dry_run:
        _print_plan(states, directory, as_json=as_json)
        return 0
    reporter, left = Reporter(quiet=quiet), any(state.state != "done" for state in states)
    if not left:
        reporter.say(f"nothing to do: all {len(states)} cells in {directory} are done and unchanged")
    with places.opened(reporter) if left else nullcontext() as start:
        make_folder(directory)
        with RunLock(directory):
            write_text(directory / "sweep.yaml", yaml.safe_dump(sweep.model_dump(mode="json"), sort_keys=False))
            ended = {state.cell.name: (state, row_of(state)) for state in states}

            def update(state: CellState) -> None:  # Parquet and CSV follow each cell that ends
                ended[state.cell.name] = state, row_of(state)
                write_table([row for _, row in ended.values()], directory)

            write_table([row for _, row in ended.values()], directory)
            if start is not None:
                run_cells(states, start, reporter, update, budget=budget, cut_to=cut_to)
            states, rows = [state for state, _ in ended.values()], [row for _, row in ended.values()]
            write_sweep_page(sweep, states, rows, directory / "table.html")
    failed = [state for state in states if state.state == "failed"]
    _print_results(rows, failed, directory, as_json=as_json)
    return 1 if failed else 0


def _cut_to(budget: str | None, sweep: SweepConfig) -> float | None:
    """Return the minutes that each cell may be cut to, as `refusal run` cuts it; None where it cuts nothing."""
    if budget is None:
        return minutes(CPU_BUDGET) if sweep.config is None else None
    return None if budget == NO_BUDGET else minutes(budget)


def _print_plan(states: Sequence[CellState], directory: Path, *, as_json: bool) -> None:
    cells = [{"cell": one.cell.name, "status": one.state, "directory": str(one.directory)} for one in states]
    if as_json:
        print(json.dumps({"directory": str(directory), "cells": cells}, indent=1))
        return
    width = max(len(one.cell.name) for one in states)
    for one in states:
        failed = f": {one.failure.line}; log: {one.log}" if one.failure else ""
        print(f"{one.cell.name:<{width}}  {one.state}{failed}")
    done = sum(one.state == "done" for one in states)
    print(f"{len(states)} cells in {directory}: {done} done, {len(states) - done} to run")
    if done < len(states):
        target = next(one.cell.target for one in states if one.state != "done")
        print(f"What one takes: {program()} run {shlex.quote(target)} --dry-run")


def _print_results(rows: Sequence[Row], failed: Sequence[CellState], directory: Path, *, as_json: bool) -> None:
    if as_json:
        names = [state.cell.name for state in failed]
        print(json.dumps({"directory": str(directory), "cells": rows, "failed": names}, indent=1))
    else:
        from extract.table import Table, print_blocks

        head = ["cell", "one or two?", "word or intent?", *RATES_SHOWN]
        print_blocks([Table("", head, [_line(row) for row in rows])])
        print("Rates: on test prompts, without the dials → with them")
        print(f"Table: {directory / 'table.html'} (also table.csv and table.parquet)")
    for state in failed:
        why = state.failure.line if state.failure else ""
        typer.echo(f"Failed: {state.cell.name}: {why}; log: {state.log}", err=True)


def _line(row: Row) -> list[str]:
    if row["verdict"] is None:
        return [str(row["cell"]), str(row["status"]), *[""] * (1 + len(RATES_SHOWN))]
    verdicts = [str(row[name]).replace("_", " ") for name in ("verdict", "trigger_verdict")]
    return [str(row["cell"]), *verdicts, *(_change(row, rate) for rate in RATES_SHOWN)]


def _change(row: Row, rate: str) -> str:
    rates = [row[f"{rate}_{when}"] for when in ("before", "after")]
    return " → ".join(f"{100 * float(value):.0f}%" for value in rates if value is not None)
