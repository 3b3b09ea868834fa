"""The `refusal` command. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import inspect
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from extract.errors import UserError, missing_package
from extract.run_directory import file_to_write
from refusal.cli import options
from refusal.cli.attack import attack
from refusal.cli.evaluate import evaluate, leaderboard
from refusal.cli.export import export
from refusal.cli.hub.command import pull, push
from refusal.cli.label import label
from refusal.cli.models import init, models_app
from refusal.cli.organism import organism_app
from refusal.cli.pressure import pressure
from refusal.cli.program import name_program, program, usage_line, warning_line
from refusal.cli.prompts import prompts_app
from refusal.cli.recalibrate import recalibrate
from refusal.cli.score import compare, score
from refusal.cli.serve import serve
from refusal.cli.status import status
from refusal.cli.store import store_app
from refusal.cli.sweep import sweep, transfer
from refusal.cli.talk import chat, generate
from refusal.cli.vectors import vectors_app

OWN = ("ask", "contrast", "by", "local_disks")  # options of one stage command each
STAGES = """
run ask
    Run every stage, from prompts to verdicts, dials and a report.

    The first example runs a shipped organism. The others run a real model, with prompts for real models.

    Example: refusal run configs/quickstart.yaml

    Example: refusal run qwen2.5-coder-0.5b --dry-run

    Example: refusal run qwen2.5-coder-0.5b --budget 2h

    Example: refusal run OWNER/MODEL --budget 2h --ask one-or-two,dials

extract local_disks
    Cache the activations of all prompts in activations.h5; resumes where it stopped.

    Example: refusal extract configs/quickstart.yaml --out runs/mine --set extract.site=resid_mid

    Example: refusal extract configs/quickstart.yaml --ray --workers 2

probe
    Fit probes at every layer and position; choose write directions by the effects of intervening with them.

    Example: refusal probe configs/quickstart.yaml --set dissociate.kl_tokens=16

dissociate contrast
    Test by directional ablation and addition whether the two refusals are two mechanisms or one.

    With --contrast, A takes the place of the normative refusal and B that of the epistemic one.

    Example: refusal dissociate configs/quickstart.yaml --set dissociate.margin=0.2

    Example: refusal dissociate organisms/zoo/instructed --contrast policy,instructed

triggers
    Test whether refusing follows the trigger word or the intent, and which context of the request changes it.

    Example: refusal triggers configs/quickstart.yaml

categories
    Test whether categories of refusal, and kinds of not-knowing, have a mechanism each or share one knob.

    Example: refusal categories configs/quickstart.yaml --set categories.least=60

uncertainty
    Sample answers to every question: do they agree, do they hedge, are they correct?

    Answers that agree have the same words; with --set uncertainty.meaning=NLI-MODEL they entail each other.

    Example: refusal uncertainty configs/quickstart.yaml --set uncertainty.samples=20

steer by
    Fit both dials, choose and certify their thresholds on prompts outside the test part, and report the rates.

    The rates are those before and after, also for one dial alone.

    Example: refusal steer configs/quickstart.yaml --set steer.max_over_refusal=0.1

    Example: refusal steer organisms/zoo/tasks --by category
"""  # the commands that run up to a stage: name, own options; help

WHOLE = "Whole runs"  # the first panel of --help

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command
    pretty_exceptions_enable=False,
    help="Separate a chat model's two refusals: 'I shouldn't answer this' and 'I can't reliably answer this'.\n\n"
    "Start with score FILE (you have answers), eval NAME --base-url URL (an endpoint) or run MODEL; "
    "models lists some.\n\nExample: refusal run configs/quickstart.yaml",
)
for name, sub in (
    ("store", store_app),
    ("prompts", prompts_app),
    ("organism", organism_app),
    ("models", models_app),
    ("vectors", vectors_app),
):
    app.add_typer(sub, name=name, rich_help_panel="Parts")


def main() -> None:
    """Run the command line; a user's mistake prints one line and exits with code 2."""
    # Threads of torch that wait would else spin: beside another process, decoding then takes up to ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = warning_line
    name = program()
    try:
        code = _named_command(name)(options.with_ray_address(sys.argv[1:]), prog_name=name, standalone_mode=False)
    except UserError as error:
        typer.echo(f"refusal: {error}", err=True)
        raise SystemExit(2) from None
    except typer.Abort:
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        if (line := missing_package(error)) is None:
            raise
        typer.echo(f"refusal: {line}", err=True)
        raise SystemExit(2) from None
    except Exception as error:
        if (line := usage_line(error, name)) is None:
            raise
        typer.echo(line, err=True, nl=bool(line))
        raise SystemExit(2) from None
    raise SystemExit(code if isinstance(code, int) else 0)


@cache
def _named_command(name: str) -> Any:  # made once in a process
    command = typer.main.get_command(app)
    name_program(command, name)
    return command


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import importlib.metadata

        typer.echo(f"refusal-probes {importlib.metadata.version('refusal-probes')}")
        raise typer.Exit


def _add_stage(name: str, own: list[str], about: str) -> None:
    """Add a command of STAGES; its parameters are those that all have, and its own."""

    def command(
        config: options.Config,
        overrides: options.Set = options.NO_OVERRIDES,
        ask: Annotated[
            str | None,
            typer.Option(metavar="Q,...", help="Answer these questions alone: one-or-two, word-or-intent, dials."),
        ] = None,
        contrast: Annotated[
            str | None,
            typer.Option(metavar="A,B", help="Contrast two ways of declining that the prompts' field decline names."),
        ] = None,
        by: Annotated[
            str | None,
            typer.Option(
                metavar="category", help="Certify thresholds of their own for recognised categories of prompts."
            ),
        ] = None,
        out: options.RunOut = None,
        as_json: options.Json = False,
        dry_run: options.DryRun = False,
        budget: options.Budget = None,
        ray: options.Ray = None,
        workers: options.RayWorkers = None,
        gpus_per_worker: options.GpusPerWorker = None,
        local_disks: options.LocalDisks = False,
        quiet: options.Quiet = False,
        verbose: options.Verbose = False,
    ) -> None:
        from refusal.cli.stages import run_command

        run_command(
            config,
            [
                *overrides,
                *options.contrast_override(contrast),
                *([] if by is None else [f"steer.by={by}"]),
                *([] if ask is None else [f"ask=[{ask}]"]),
            ],
            out,
            "report" if name == "run" else name,
            as_json=as_json,
            dry_run=dry_run,
            budget=budget,
            quiet=quiet,
            verbose=verbose,
            wanted_workers=options.workers_wanted(ray, workers, gpus_per_worker, local_disks=local_disks),
        )

    every = inspect.signature(command, eval_str=True)
    kept = [given for given in every.parameters.values() if given.name not in OWN or given.name in own]
    command.__signature__ = every.replace(parameters=kept)  # type: ignore[attr-defined]  # typer reads it
    panel = WHOLE if name == "run" else "Stages of a run"
    app.command(name, help=textwrap.dedent(about), rich_help_panel=panel)(command)


for stage in re.split(r"\n+(?=\w)", STAGES.strip()):
    head, _, about = stage.partition("\n")
    _add_stage(head.split()[0], head.split()[1:], about)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, e.g. runs/quickstart.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of report.html, or a name ending in .html; by default the run, with several runs the "
            "working directory.",
        ),
    ] = None,
) -> None:
    """Write report.html and the figures of a finished run again; for several runs, one page that compares them.

    Example: refusal report runs/quickstart
    """
    from experiments.report.stage import write_report
    from experiments.run.config import load_config
    from experiments.run.inputs import RunInputs

    for directory in runs:
        if not (directory / "results.json").is_file():
            raise UserError(
                f"{directory} is not a finished run: it has no results.json; make it with: refusal run CONFIG"
            )
    finished = [RunInputs(load_config(directory / "config.yaml"), directory) for directory in runs]
    path = file_to_write(out or (runs[0] if len(runs) == 1 else Path()), "report.html", ".html")
    write_report(finished, path)
    typer.echo(str(path))


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    WHOLE: (init, status, report, sweep, export),
    "Answers of any model": (score, label, compare, evaluate, leaderboard),
    "A run on other prompts": (transfer, pressure, attack),
    "Dials in use": (generate, chat, serve, recalibrate, push, pull),
}
for panel, functions in COMMANDS.items():
    for function in functions:
        app.command("eval" if function is evaluate else None, rich_help_panel=panel)(function)


if __name__ == "__main__":
    main()
