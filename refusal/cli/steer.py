"""`refusal steer`: calibrated dials with certified thresholds, for all prompts or by category."""

from __future__ import annotations

from typing import Annotated

import typer

from refusal.cli.options import (
    NO_OVERRIDES,
    Budget,
    Config,
    DryRun,
    GpusPerWorker,
    Json,
    Quiet,
    Ray,
    RayWorkers,
    RunOut,
    Set,
    Verbose,
    workers_wanted,
)


def add_steer(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(steer)


def steer(
    config: Config,
    overrides: Set = NO_OVERRIDES,
    by: Annotated[
        str | None,
        typer.Option(metavar="category", help="Certify thresholds of their own for recognised categories of prompts."),
    ] = None,
    out: RunOut = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    budget: Budget = None,
    ray: Ray = None,
    workers: RayWorkers = None,
    gpus_per_worker: GpusPerWorker = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit both dials, choose and certify their thresholds on prompts outside the test part, and report the rates.

    The rates are those before and after, also for one dial alone.

    Example: refusal steer configs/quickstart.yaml --set steer.max_over_refusal=0.1

    Example: refusal steer organisms/zoo/tasks --by category
    """
    from refusal.cli.stages import run_command

    run_command(
        config,
        [*overrides, *([] if by is None else [f"steer.by={by}"])],
        out,
        "steer",
        as_json=as_json,
        dry_run=dry_run,
        budget=budget,
        quiet=quiet,
        verbose=verbose,
        wanted_workers=workers_wanted(ray, workers, gpus_per_worker),
    )
