"""`refusal status`: how far a run is, who writes it now, and the next command."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Json, print_json
from refusal.cli.program import program


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, e.g. runs/quickstart.")],
    as_json: Json = False,
) -> None:
    """Show which stages of a run are done, stale or missing, which process writes it now, and the next command.

    Example: refusal status runs/quickstart
    """
    from experiments.pipeline.graph import stage_states
    from experiments.run.config import load_config
    from experiments.run.run_lock import is_held, lock_holder

    config = run / "config.yaml"
    if not config.is_file():
        raise UserError(f"{run} is not a run directory: it has no config.yaml; make one with: refusal run CONFIG")
    stages = stage_states(load_config(config), run)
    is_running, holder = is_held(run), lock_holder(run)
    done = sum(stage.state == "done" for stage in stages)
    words = ["report", str(run)] if done == len(stages) else ["run", str(config), "--out", str(run)]
    following = f"{program()} {shlex.join(words)}"
    if as_json:
        about = None if holder is None else asdict(holder)
        holders = {"running": about if is_running else None, "killed": None if is_running else about}
        print_json({"run": str(run), "stages": list(map(asdict, stages)), **holders, "next": following})
        return
    typer.echo(f"{run}: {done} of {len(stages)} stages are done")
    for stage in stages:
        when = "" if stage.finished is None else f"{_local(stage.finished)}  {_duration(stage.seconds or 0.0):>8}"
        typer.echo(f"  {stage.name:<18} {stage.state:<8} {when}".rstrip())
    if holder is not None:
        step = f", at {holder.step} since {_local(holder.step_since)}" if holder.step else ""
        what = "Running" if is_running else "Killed"
        typer.echo(f"{what}: process {holder.process} on {holder.host}, started {_local(holder.since)}{step}")
        typer.echo(f"  {holder.command}")
    typer.echo("Wait for it to end, then:" if is_running and holder else "Next:")
    typer.echo(f"  {following}")


def _local(time: str) -> str:
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} m"
    return f"{minutes} m {rest:02} s" if minutes else f"{seconds:.1f} s"
