"""The `refusal` command. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal.cli.hub.command import add_hub
from refusal.cli.options import (
    NO_OVERRIDES,
    Budget,
    Config,
    DryRun,
    GpusPerWorker,
    Json,
    LocalDisks,
    Quiet,
    Ray,
    RayWorkers,
    RunOut,
    Set,
    Verbose,
    contrast_override,
    with_ray_address,
    workers_wanted,
)
from refusal.cli.organism import organism_app
from refusal.cli.program import name_program, program, usage_line, warning_line
from refusal.cli.prompts import prompts_app
from refusal.cli.run.eval import add_eval
from refusal.cli.run.init import add_init
from refusal.cli.run.leaderboard import add_leaderboard
from refusal.cli.run.models import add_models
from refusal.cli.run.status import add_status
from refusal.cli.run.sweep import add_sweep
from refusal.cli.score import add_commands
from refusal.cli.serve import add_serving
from refusal.cli.steer import add_steer
from refusal.cli.store.command import store_app
from refusal.cli.talk import add_talking

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command
    pretty_exceptions_enable=False,
    help="Separate a chat model's two refusals: 'I shouldn't answer this' and 'I can't reliably answer this'.\n\n"
    "Example: refusal run configs/quickstart.yaml",
)
for name, sub in (("store", store_app), ("prompts", prompts_app), ("organism", organism_app)):
    app.add_typer(sub, name=name)


def main() -> None:
    """Run the command line; a user's mistake prints one line and exits with code 2."""
    from extract.errors import UserError

    # Threads of torch that wait would else spin: beside another process, decoding then takes up to ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = warning_line
    name = program()
    try:
        code = _named_command(name)(with_ray_address(sys.argv[1:]), prog_name=name, standalone_mode=False)
    except UserError as error:
        typer.echo(f"refusal: {error}", err=True)
        raise SystemExit(2) from None
    except typer.Abort:
        raise SystemExit(1) from None
    except Exception as error:
        if (line := usage_line(error, name)) is None:
            raise
        typer.echo(line, err=True, nl=bool(line))
        raise SystemExit(2) from None
    raise SystemExit(code if isinstance(code, int) else 0)


@cache
def _named_command(name: str) -> Any:
    """Return the command, whose help calls the program by this name; made once in a process."""
    command = typer.main.get_command(app)
    name_program(command, name)
    return command


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import importlib.metadata

        typer.echo(f"refusal-probes {importlib.metadata.version('refusal-probes')}")
        raise typer.Exit


def _staged(name: str, about: str, *examples: str, until: str | None = None) -> None:
    """Add a command that runs the stages up to the one of its own name, or up to `until`."""

    def command(
        config: Config,
        overrides: Set = NO_OVERRIDES,
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
        from refusal.cli.stages import run_command

        run_command(
            config,
            overrides,
            out,
            until or name,
            as_json=as_json,
            dry_run=dry_run,
            budget=budget,
            quiet=quiet,
            verbose=verbose,
            wanted_workers=workers_wanted(ray, workers, gpus_per_worker),
        )

    shown = [f"Example: refusal {name} {example}" for example in examples]
    app.command(name, help="\n\n".join([about, *shown]))(command)


_staged(
    "run",
    "Run every stage, from prompts to verdicts, dials and a report.\n\n"
    "The first example runs a shipped organism. The others run a real model, with prompts for real models.",
    "configs/quickstart.yaml",
    "configs/models/qwen2.5-1.5b-instruct.yaml --dry-run",
    "configs/models/qwen2.5-1.5b-instruct.yaml --budget 2h",
    "OWNER/MODEL --budget 2h",
    until="report",
)


@app.command()
def extract(
    config: Config,
    overrides: Set = NO_OVERRIDES,
    out: RunOut = None,
    shared: Annotated[bool, typer.Option("--shared", help="Let several processes write shards of one store.")] = False,
    as_json: Json = False,
    dry_run: DryRun = False,
    budget: Budget = None,
    ray: Ray = None,
    workers: RayWorkers = None,
    gpus_per_worker: GpusPerWorker = None,
    local_disks: LocalDisks = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Cache the activations of all prompts in activations.h5; resumes where it stopped.

    Example: refusal extract configs/quickstart.yaml --out runs/mine --set extract.site=resid_mid

    Example: refusal extract configs/quickstart.yaml --ray --workers 2
    """
    from refusal.cli.stages import run_command

    run_command(
        config,
        overrides,
        out,
        "extract",
        as_json=as_json,
        dry_run=dry_run,
        shared=shared,
        budget=budget,
        quiet=quiet,
        verbose=verbose,
        wanted_workers=workers_wanted(ray, workers, gpus_per_worker, local_disks=local_disks),
    )


_staged(
    "probe",
    "Fit probes at every layer and position; choose write directions by the effects of intervening with them.",
    "configs/quickstart.yaml --set dissociate.kl_tokens=16",
)


@app.command()
def dissociate(
    config: Config,
    overrides: Set = NO_OVERRIDES,
    contrast: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Contrast two ways of declining that the prompts' field decline names."),
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
    """Test by directional ablation and addition whether the two refusals are two mechanisms or one.

    With --contrast, A takes the place of the normative refusal and B that of the epistemic one.

    Example: refusal dissociate configs/quickstart.yaml --set dissociate.margin=0.2

    Example: refusal dissociate organisms/zoo/instructed --contrast policy,instructed
    """
    from refusal.cli.stages import run_command

    run_command(
        config,
        [*overrides, *contrast_override(contrast)],
        out,
        "dissociate",
        as_json=as_json,
        dry_run=dry_run,
        budget=budget,
        quiet=quiet,
        verbose=verbose,
        wanted_workers=workers_wanted(ray, workers, gpus_per_worker),
    )


_staged(
    "triggers",
    "Test whether refusing follows the trigger word or the intent, and which context of the request changes it.",
    "configs/quickstart.yaml",
)
_staged(
    "categories",
    "Test whether categories of refusal, and kinds of not-knowing, have a mechanism each or share one knob.",
    "configs/quickstart.yaml --set categories.least=60",
)
_staged(
    "uncertainty",
    "Sample answers to every question: do they agree, do they hedge, are they correct?\n\n"
    "Answers that agree have the same words; with --set uncertainty.meaning=NLI-MODEL they entail each other.",
    "configs/quickstart.yaml --set uncertainty.samples=20",
)


add_steer(app)


@app.command()
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
    from extract.errors import UserError
    from extract.run_directory import file_to_write

    for directory in runs:
        if not (directory / "results.json").is_file():
            raise UserError(
                f"{directory} is not a finished run: it has no results.json; make it with: refusal run CONFIG"
            )
    finished = [RunInputs(load_config(directory / "config.yaml"), directory) for directory in runs]
    path = file_to_write(out or (runs[0] if len(runs) == 1 else Path()), "report.html", ".html")
    write_report(finished, path)
    typer.echo(str(path))


for add in (add_init, add_models, add_status, add_sweep):
    add(app)
add_commands(app)
add_eval(app)
add_leaderboard(app)
add_talking(app)
add_serving(app)
add_hub(app)


if __name__ == "__main__":
    main()
