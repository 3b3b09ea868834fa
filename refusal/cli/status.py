"""`refusal status`: how far a run is, who writes it now, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Json, print_json
from refusal.cli.program import program

if TYPE_CHECKING:
    from experiments.pipeline.graph import StageState
    from experiments.run.run_lock import RunHolder


@dataclass(frozen=True)
class RunStatus:
    """How far a run is."""

    run: str
    stages: Sequence[StageState]
    running: RunHolder | None  # the process that writes into it now
    killed: RunHolder | None  # the process that wrote into it last, where it could not end as it should
    next: str  # a command


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, e.g. runs/quickstart.")],
    as_json: Json = False,
) -> None:
    """Show which stages of a run are done, stale or missing, which process writes it now, and the next command.

    Example: refusal status runs/quickstart
    """
    state = run_status(run)
    if as_json:
        print_json(asdict(state))
        return
    for line in lines(state):
        typer.echo(line)


def run_status(directory: Path) -> RunStatus:
    """Return how far a run is; writes nothing and loads no model."""
    from experiments.pipeline.graph import stage_states
    from experiments.run.config import load_config
    from experiments.run.run_lock import is_held, lock_holder

    if not (directory / "config.yaml").is_file():
        raise UserError(f"{directory} is not a run directory: it has no config.yaml; make one with: refusal run CONFIG")
    stages = stage_states(load_config(directory / "config.yaml"), directory)
    held, holder = is_held(directory), lock_holder(directory)
    run = shlex.quote(str(directory))
    finished = all(stage.state == "done" for stage in stages)
    following = f"report {run}" if finished else f"run {shlex.quote(str(directory / 'config.yaml'))} --out {run}"
    return RunStatus(
        str(directory), stages, holder if held else None, None if held else holder, f"{program()} {following}"
    )


def lines(state: RunStatus) -> list[str]:
    """Return the status as lines for the terminal."""
    done = sum(stage.state == "done" for stage in state.stages)
    shown = [f"{state.run}: {done} of {len(state.stages)} stages are done"]
    for stage in state.stages:
        when = "" if stage.finished is None else f"{_local(stage.finished)}  {_duration(stage.seconds or 0.0):>8}"
        shown.append(f"  {stage.name:<18} {stage.state:<8} {when}".rstrip())
    for holder, word in ((state.running, "Running"), (state.killed, "Killed")):
        if holder is not None:
            step = f", at {holder.step} since {_local(holder.step_since)}" if holder.step else ""
            shown.append(f"{word}: process {holder.process} on {holder.host}, started {_local(holder.since)}{step}")
            shown.append(f"  {holder.command}")
    return [*shown, "Wait for it to end, then:" if state.running else "Next:", f"  {state.next}"]


def _local(time: str) -> str:
    from datetime import datetime

    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} m"
    return f"{minutes} m {rest:02} s" if minutes else f"{seconds:.1f} s"
