"""The `refusal` command. Heavy imports happen inside commands, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal.cli.options import NO_OVERRIDES, Config, DryRun, Json, RunOut, Set
from refusal.cli.organism import organism_app
from refusal.cli.prompts import prompts_app
from refusal.cli.score import add_commands
from refusal.cli.serve import add_serving
from refusal.cli.store import store_app
from refusal.cli.talk import add_talking

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Take a chat model's two refusals apart: 'I shouldn't answer this' and 'I can't reliably answer this'.",
)
for name, sub in (("store", store_app), ("prompts", prompts_app), ("organism", organism_app)):
    app.add_typer(sub, name=name)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    from extract.errors import UserError

    try:
        app()
    except UserError as error:
        typer.echo(f"refusal: {error}", err=True)
        raise SystemExit(2) from None


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import importlib.metadata

        typer.echo(f"refusal-probes {importlib.metadata.version('refusal-probes')}")
        raise typer.Exit


def _staged(name: str, about: str, example: str, until: str | None = None) -> None:
    """Add a command that runs the stages up to one of them, its own unless another is named."""

    def command(
        config: Config,
        overrides: Set = NO_OVERRIDES,
        out: RunOut = None,
        as_json: Json = False,
        dry_run: DryRun = False,
    ) -> None:
        from refusal.cli.stages import run_command

        run_command(config, overrides, out, until or name, as_json=as_json, dry_run=dry_run)

    app.command(name, help=f"{about}\n\nExample: refusal {name} {example}")(command)


_staged(
    "run",
    "Go the whole way, from prompts to a verdict and a report.",
    "configs/quickstart.yaml --set model.name=Qwen/Qwen2.5-1.5B-Instruct",
    until="report",
)


@app.command()
def extract(
    config: Config,
    overrides: Set = NO_OVERRIDES,
    out: RunOut = None,
    shared: Annotated[bool, typer.Option("--shared", help="Several processes write shards of this store.")] = False,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Cache activations: prompts to activations.h5; resumes where it stopped.

    Example: refusal extract configs/quickstart.yaml --out runs/mine --set extract.site=resid_mid
    """
    from refusal.cli.stages import run_command

    run_command(config, overrides, out, "extract", as_json=as_json, dry_run=dry_run, shared=shared)


_staged(
    "probe",
    "Fit probes over layers and positions; choose write directions by what intervening with them does.",
    "configs/quickstart.yaml --set dissociate.positions=[post_last] --set dissociate.kl_tokens=16",
)
_staged(
    "dissociate",
    "Test by ablation and addition whether the two refusals are two mechanisms or one.",
    "configs/quickstart.yaml --set dissociate.margin=0.2",
)
_staged(
    "triggers",
    "Say whether refusing follows the trigger word or the intent, and what beside the request moves it.",
    "configs/quickstart.yaml",
)
_staged(
    "uncertainty",
    "Sample answers to every question: does the model say the same again, does it hedge, and is it right?",
    "configs/quickstart.yaml --set uncertainty.samples=20 --set uncertainty.meaning=OWNER/NLI-MODEL",
)
_staged(
    "steer",
    "Set both dials at thresholds chosen and certified off test; rates before and after; two dials against one.",
    "configs/quickstart.yaml --set steer.max_over_refusal=0.1",
)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, e.g. runs/quickstart.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default report.html in the run; with several runs, here.")
    ] = None,
) -> None:
    """Write report.html and the figures of a finished run again; of several runs, one page that compares them.

    Example: refusal report runs/quickstart
    """
    from experiments.report.stage import write_report
    from experiments.run.config import load_config
    from experiments.run.inputs import RunInputs
    from extract.errors import UserError

    for directory in runs:
        if not (directory / "results.json").is_file():
            raise UserError(
                f"{directory} is not a finished run: it has no results.json; make it with: refusal run CONFIG"
            )
    finished = [RunInputs(load_config(directory / "config.yaml"), directory) for directory in runs]
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    write_report(finished, path)
    typer.echo(str(path))


add_commands(app)
add_talking(app)
add_serving(app)


if __name__ == "__main__":
    main()
