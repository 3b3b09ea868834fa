"""`refusal sweep` and `refusal transfer`: a grid of runs with one table over them; reads trained and tested on sets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from extract.run_directory import is_run
from refusal.cli import options
from refusal.cli.program import program, resumable

if TYPE_CHECKING:
    from experiments.charts.specification import Row
    from experiments.sweep.grid import CellState

RATES_SHOWN = ("over_refusal", "missed_harm", "overconfidence")  # on the screen; the files have all


@resumable()
def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP", help="A YAML file of the grid, e.g. configs/sweeps/organisms.yaml.")
    ],
    overrides: options.Set = options.NO_OVERRIDES,
    out: options.RunOut = None,
    as_json: options.Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, done and left; run nothing.")] = False,
    budget: options.Budget = None,
    ray: options.Ray = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Cells at a time: one by default; with --ray as many as have room."),
    ] = None,
    gpus_per_worker: options.GpusPerWorker = None,
    quiet: options.Quiet = False,
) -> None:
    """Run every combination of models, prompt sets and keys; write one table of verdicts and rates.

    Each cell is a run of its own in DIR/CELL, in a process of its own: one that fails is named at the end with its
    log, and the others are run. The same command goes on where it stopped, and runs failed cells again.

    Example: refusal sweep configs/sweeps/organisms.yaml --dry-run

    Example: refusal sweep configs/sweeps/organisms.yaml --workers 2

    Example: refusal sweep configs/sweeps/organisms.yaml --ray --gpus-per-worker 0.5
    """
    import yaml

    from experiments.cluster.connection import WorkersWanted
    from experiments.run.run_lock import RunLock
    from experiments.sweep.grid import cells_of, load_sweep, state_of
    from experiments.sweep.run import Places, run_cells
    from experiments.sweep.table import row_of, write_sweep_page, write_table
    from extract.atomic_write import make_folder, write_text
    from extract.progress import Reporter
    from extract.yaml_file import key_and_value
    from refusal.cli.target import load_target

    if ray is None and gpus_per_worker is not None:
        raise UserError("--gpus-per-worker is for Ray workers; give --ray, too")
    places = Places(workers or 1) if ray is None else Places(ray=WorkersWanted(ray, workers, gpus_per_worker))
    given = dict(key_and_value("--set", override, "dissociate.margin=0.2") for override in overrides)
    grid = load_sweep(file, given)
    budget = budget or grid.budget
    cells = cells_of(grid, file, lambda target, given: load_target(target, given)[0])
    cut = (
        options.CPU_BUDGET if budget is None and grid.config is None else budget
    )  # as `refusal run` cuts a model's run
    directory, cut_to = (
        out or Path("runs") / grid.name,
        None if cut is None or cut == options.NO_BUDGET else options.minutes(cut),
    )
    if is_run(directory):
        raise UserError(f"{directory} is a run's directory; choose another with --out")
    states = [state_of(cell, directory / cell.name, cut_to) for cell in cells]
    if dry_run:
        _print_plan(states, directory, as_json=as_json)
        return
    reporter, left = Reporter(quiet=quiet), any(state.state != "done" for state in states)
    if not left:
        reporter.say(f"nothing to do: all {len(states)} cells in {directory} are done and unchanged")
    with places.opened(reporter) if left else nullcontext() as start:
        make_folder(directory)
        with RunLock(directory):
            write_text(directory / "sweep.yaml", yaml.safe_dump(grid.model_dump(mode="json"), sort_keys=False))
            ended = {state.cell.name: (state, row_of(state)) for state in states}

            def update(state: CellState) -> None:  # Parquet and CSV follow each cell that ends
                ended[state.cell.name] = state, row_of(state)
                write_table([row for _, row in ended.values()], directory)

            write_table([row for _, row in ended.values()], directory)
            if start is not None:
                run_cells(states, start, reporter, update, budget=budget, cut_to=cut_to)
            states, rows = [state for state, _ in ended.values()], [row for _, row in ended.values()]
            write_sweep_page(grid, states, rows, directory / "table.html")
    failed = [state for state in states if state.state == "failed"]
    _print_results(rows, failed, directory, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _print_plan(states: Sequence[CellState], directory: Path, *, as_json: bool) -> None:
    if as_json:
        cells = [{"cell": one.cell.name, "status": one.state, "directory": str(one.directory)} for one in states]
        options.print_json({"directory": str(directory), "cells": cells})
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
        options.print_json(
            {"directory": str(directory), "cells": rows, "failed": [state.cell.name for state in failed]}
        )
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
    from experiments.sweep.table import verdicts_shown

    if row["verdict"] is None:
        return [str(row["cell"]), str(row["status"]), *[""] * (1 + len(RATES_SHOWN))]
    rates = ([row[f"{rate}_{when}"] for when in ("before", "after")] for rate in RATES_SHOWN)
    changes = (" → ".join(f"{100 * float(value):.0f}%" for value in both if value is not None) for both in rates)
    return [str(row["cell"]), *verdicts_shown(row), *changes]


def transfer(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A hub id, a known name, a directory or a GGUF file.")],
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The sets; by default configs/transfer.yaml.")
    ] = Path("configs/transfer.yaml"),
    sets: options.SetsFolder = None,
    limit: Annotated[
        int | None, typer.Option(min=20, help="Most prompts of each label of each set, in place of the file's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory of transfer.json; by default transfer/MODEL.")
    ] = None,
    reads: Annotated[
        bool, typer.Option("--reads/--no-reads", help="Which read holds best on a set left out; about as long again.")
    ] = True,
    adapter: options.Adapter = None,
    template: options.Template = None,
    as_json: options.Json = False,
) -> None:
    """Train a read on each set of prompts and test it on all: AUROC, recall at 1 % false positives, words beside.

    Then compare reads (single tokens, mean, max, attention, MultiMax, several layers) on sets that are left out.

    Example: refusal transfer qwen2.5-coder-0.5b --sets my-sets/

    Your own sets: copy configs/transfer.yaml, and name prompt files in it (path)
    """
    from experiments.transfer.sets import load_transfer, read_sets
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter

    wanted = load_transfer(config)
    quiet_libraries()
    given = read_sets(wanted if limit is None else wanted.model_copy(update={"limit": limit}), sets)
    reporter = Reporter(quiet=as_json)
    from experiments.transfer.leave_one_out import reads_left_out
    from experiments.transfer.measure import capture_sets
    from experiments.transfer.measure import transfer as measured
    from experiments.transfer.page import write_transfer_page
    from experiments.transfer.results import blocks
    from extract.model.loading import load_model
    from extract.table import print_blocks

    loaded = load_model(model, adapter=adapter, template=template)
    activations, tokens = capture_sets(loaded, given, reporter, every_token=reads)
    del loaded  # its memory is for the fits
    result = measured(activations, given, wanted.seed, reporter)
    if reads:
        result = result.model_copy(update={"left_out": reads_left_out(activations, tokens, given, reporter)})
    folder = out or Path("transfer") / Path(model).name
    folder.mkdir(parents=True, exist_ok=True)
    result.write(folder / "transfer.json")
    write_transfer_page(result, folder / "transfer.html")
    if as_json:
        options.print_json(result.to_dict())
        return
    print_blocks(blocks(result))
    typer.echo(f"Page: {folder / 'transfer.html'}; every cell with its intervals: {folder / 'transfer.json'}", err=True)
