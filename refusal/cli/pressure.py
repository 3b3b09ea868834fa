"""`refusal pressure`: a finished run's dials, and their certificate, on perturbed test prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from extract.run_directory import file_to_write
from refusal.cli import options
from refusal.cli.program import program, resumable

EVERY: list[str] = []


@resumable()
def pressure(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run with dials.")],
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Most test prompts of each label.")] = 60,
    perturbation: Annotated[
        list[str], typer.Option(metavar="NAME", help="One of configs/pressure.yaml, repeatable; by default all.")
    ] = EVERY,
    out: Annotated[Path | None, typer.Option(metavar="FILE|DIR", help="By default RUN/pressure.json.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Ask test prompts in a role-play, in a code, after long texts, …: do the dials and their certificate hold there?

    The same prompts are answered without dials and with them, and judged as the run was. The same command goes on
    where it stopped.

    Example: refusal pressure runs/quickstart --prompts 24 --perturbation base64 --perturbation role_play
    """
    from experiments.pressure.perturbations import load_perturbations
    from experiments.run.config import load_config
    from experiments.run.run_lock import RunLock
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter
    from refusal.finished_run import load_run

    perturbations, path = load_perturbations(perturbation), file_to_write(out or run, "pressure.json", ".json")
    finished = load_run(run).results
    if not finished.dials or not (run / "dials.safetensors").is_file():
        raise UserError(f"{run} has no dials; fit them with: {program()} steer {run}")
    quiet_libraries()
    from experiments.charts.specification import save
    from experiments.pressure.measure import press
    from experiments.pressure.results import blocks, pressure_chart
    from experiments.responses.loaded_run import LoadedRun
    from extract.table import print_blocks

    loaded = LoadedRun(load_config(run / "config.yaml"), run, Reporter(quiet=quiet or as_json))
    with RunLock(run):
        result = press(loaded, perturbations, prompts, finished.steer.certified)
    path.parent.mkdir(parents=True, exist_ok=True)
    result.write(path)
    save(pressure_chart(result), path.with_suffix(".png"))
    if as_json:
        options.print_json(result.to_dict())
        return
    print_blocks(blocks(result))
    typer.echo(f"Every rate with its intervals: {path}; figure: {path.with_suffix('.svg')}", err=True)
