"""`refusal export`: a finished run in other tools' viewers: Inspect's logs, Weights & Biases."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Json, print_result
from refusal.cli.program import program


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Write its answers as Inspect's logs, one a condition, for inspect view.")
    ] = False,
    wandb: Annotated[
        bool, typer.Option("--wandb", help="Log its rates, verdicts and figures to Weights & Biases.")
    ] = False,
    project: Annotated[str, typer.Option(metavar="NAME", help="With --wandb: the project.")] = "refusal-probes",
    offline: Annotated[
        bool, typer.Option("--offline", help="With --wandb: write files under RUN/wandb alone, for wandb sync.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --inspect: folder of the logs, by default RUN/inspect.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a finished run for the viewers of other tools: to filter, read and compare its answers; to track its rates.

    Inspect's logs hold test prompts plainly and with the dials, and the prompts of each intervention under it.

    Example: refusal export runs/quickstart --inspect

    Then: inspect view --log-dir runs/quickstart/inspect

    Example: refusal export runs/quickstart --wandb --offline
    """
    if not inspect and not wandb:
        raise UserError(f"say for which viewer: {program()} export {run} --inspect, or --wandb")
    from refusal.finished_run import load_run

    finished = load_run(run)
    lines, logs, logged, folder = list[str](), dict[str, int](), None, out or run / "inspect"
    if inspect:
        from experiments.run.config import load_config
        from experiments.run.inputs import RunInputs
        from refusal_probes.run_logs import BEFORE, WITH_DIALS, write_run_logs

        logs = write_run_logs(RunInputs(load_config(run / "config.yaml"), run), finished.results, folder)
        lines += [f"{name:<28} {n:>6,} answers" for name, n in logs.items()]
        if not logs.keys() - {BEFORE, WITH_DIALS}:
            lines.append("No intervention: none was measured, or an earlier version did, which kept no answers.")
        lines.append(f"Read them: inspect view --log-dir {shlex.quote(str(folder))}")
    if wandb:
        from refusal.tracking import log_run

        logged = log_run(finished, project=project, offline=offline)
        lines.append(f"Send it: wandb sync {shlex.quote(logged)}" if offline else f"Weights & Biases: {logged}")
    record = {"folder": str(folder) if inspect else None, "answers": logs, "wandb": logged}
    print_result(record, lines, as_json=as_json)
