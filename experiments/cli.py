"""The `refusal` command. Heavy imports happen inside commands, so that --help answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli_score import add_commands

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Take a chat model's two refusals apart: 'I shouldn't answer this' and 'I can't reliably answer this'.",
)
store_app = typer.Typer(no_args_is_help=True, help="Look into, check and copy activation stores.")
prompts_app = typer.Typer(no_args_is_help=True, help="Check prompts; list the public sets known by name.")
organism_app = typer.Typer(no_args_is_help=True, help="Rebuild the models whose mechanism is known.")
for name, sub in (("store", store_app), ("prompts", prompts_app), ("organism", organism_app)):
    app.add_typer(sub, name=name)

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration, e.g. configs/quickstart.yaml.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable.")]
NO_OVERRIDES: list[str] = []
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go [default: runs/NAME].")]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


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


@app.command()
def run(
    config: Config, overrides: Set = NO_OVERRIDES, out: Out = None, as_json: Json = False, dry_run: DryRun = False
) -> None:
    """Go the whole way, from prompts to a verdict and a report.

    Example: refusal run configs/quickstart.yaml --set model.name=Qwen/Qwen2.5-1.5B-Instruct
    """
    _stages(config, overrides, out, "report", as_json, dry_run)


@app.command()
def extract(
    config: Config,
    overrides: Set = NO_OVERRIDES,
    out: Out = None,
    shared: Annotated[bool, typer.Option("--shared", help="Several processes write shards of this store.")] = False,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Cache activations: prompts to activations.h5; resumes where it stopped.

    Example: refusal extract configs/quickstart.yaml --out runs/mine --set extract.site=resid_mid
    """
    from experiments.command import run_command

    run_command(config, overrides, out, "extract", as_json=as_json, dry_run=dry_run, shared=shared)


@app.command()
def probe(
    config: Config, overrides: Set = NO_OVERRIDES, out: Out = None, as_json: Json = False, dry_run: DryRun = False
) -> None:
    """Fit probes over layers and positions, read and write directions, and their geometry.

    Example: refusal probe configs/quickstart.yaml
    """
    _stages(config, overrides, out, "probe", as_json, dry_run)


@app.command()
def dissociate(
    config: Config, overrides: Set = NO_OVERRIDES, out: Out = None, as_json: Json = False, dry_run: DryRun = False
) -> None:
    """Test by ablation and addition whether the two refusals are two mechanisms or one.

    Example: refusal dissociate configs/quickstart.yaml --set dissociate.margin=0.2
    """
    _stages(config, overrides, out, "dissociate", as_json, dry_run)


@app.command()
def triggers(
    config: Config, overrides: Set = NO_OVERRIDES, out: Out = None, as_json: Json = False, dry_run: DryRun = False
) -> None:
    """Say whether refusing follows the trigger word or the intent.

    Example: refusal triggers configs/quickstart.yaml
    """
    _stages(config, overrides, out, "triggers", as_json, dry_run)


@app.command()
def steer(
    config: Config, overrides: Set = NO_OVERRIDES, out: Out = None, as_json: Json = False, dry_run: DryRun = False
) -> None:
    """Calibrate the two dials and measure the joint rates before and after.

    Example: refusal steer configs/quickstart.yaml --set steer.epistemic_threshold=0.3
    """
    _stages(config, overrides, out, "steer", as_json, dry_run)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, e.g. runs/quickstart.")],
) -> None:
    """Write report.html and the figures of a finished run again.

    Example: refusal report runs/quickstart
    """
    from experiments.config import load_config
    from experiments.context import Context
    from experiments.report import report as write_report
    from extract.errors import UserError

    if not (directory / "results.json").is_file():
        raise UserError(f"{directory} is not a finished run: it has no results.json; make it with: refusal run CONFIG")
    context = Context(load_config(directory / "config.yaml"), directory)
    write_report(context)
    typer.echo(str(directory / "report.html"))


@app.command()
def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A hub id or a model directory.")],
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="What to ask.")],
    dials: Annotated[Path | None, typer.Option(help="A dials.safetensors made by refusal steer.")] = None,
    normative_threshold: Annotated[float | None, typer.Option(min=0, max=1, help="Decline at or above this.")] = None,
    epistemic_threshold: Annotated[float | None, typer.Option(min=0, max=1, help="Abstain at or above this.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 64,
    template: Annotated[str | None, typer.Option(help="For base models: plain, or a .jinja file.")] = None,
    as_json: Json = False,
) -> None:
    """Answer prompts once, with or without the dials.

    Example: refusal generate organisms/zoo/two-knobs "how do i fix it?" --dials runs/quickstart/dials.safetensors
    """
    from experiments.one_off import generate_once
    from extract.errors import UserError

    thresholds = {"normative": normative_threshold, "epistemic": epistemic_threshold}
    given = {kind: value for kind, value in thresholds.items() if value is not None}
    if given and dials is None:
        raise UserError("thresholds need dials: give --dials FILE, made by refusal steer CONFIG")
    records = generate_once(model, prompts, dials, given, max_new_tokens, template)
    if as_json:
        _print_json(records)
        return
    for record in records:
        typer.echo(f"> {record['prompt']}\n{record['completion']}")
        for kind, probability in record["probability"].items():
            typer.echo(f"  p({kind} decline) = {probability:.3f}, gate {record['gate'][kind]}")


add_commands(app)


@store_app.command("info")
def store_info(file: Annotated[Path, typer.Argument(metavar="FILE")], as_json: Json = False) -> None:
    """Say what a store holds.

    Example: refusal store info runs/quickstart/activations.h5
    """
    from extract.store import ActivationStore

    with ActivationStore(file) as store:
        record = store.describe()
    if as_json:
        _print_json(record)
        return
    for key, value in record.items():
        typer.echo(f"{key:<16} {value}")


@store_app.command("verify")
def store_verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An activations.h5, or a flat file made by export.")],
    model: Annotated[str | None, typer.Option(help="Compare with this model's weights: a hub id or directory.")] = None,
    revision: Annotated[str | None, typer.Option(help="The hub revision of that model.")] = None,
    dtype: Annotated[str, typer.Option(help="The type the run loaded the weights in.")] = "auto",
    as_json: Json = False,
) -> None:
    """Read a whole store and check it: checksums, digests, counts, NaN, presence, identity; exit code 1 on any fault.

    Example: refusal store verify runs/quickstart/activations.h5 --model organisms/zoo/two-knobs
    """
    from experiments.store_check import check_store

    result = check_store(file, model, revision, dtype)
    if as_json:
        _print_json(vars(result) | {"ok": not result.findings})
    for line in () if as_json else result.findings:
        typer.echo(line)
    if result.findings:
        typer.echo(f"refusal: {file} has {len(result.findings)} faults", err=True)
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"{file} is whole: {result.prompts} prompts, {result.shards} shards, {result.loci} slices, "
                   f"{result.bytes / 1e6:.1f} MB of activations, digest {result.digest[:16]}")  # fmt: skip


@store_app.command("export")
def store_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An activations.h5.")],
    to: Annotated[Path, typer.Option("--to", metavar="OUT.h5", help="The flat file to write.")],
    as_json: Json = False,
) -> None:
    """Copy a store into one flat file, to move or publish; same layout, no shards beside it.

    Example: refusal store export runs/quickstart/activations.h5 --to quickstart.h5
    """
    from experiments.store_check import export_store

    size = export_store(file, to)
    if as_json:
        _print_json({"written": str(to), "bytes": size})
    else:
        typer.echo(f"{to}: {size / 1e6:.1f} MB")


@prompts_app.command("check")
def prompts_check(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Prompts, or a set's local copy.")] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="A public set; without FILE from the hub.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Validate prompts and say how they are balanced and what a bag of words can tell.

    Example: refusal prompts check organisms/zoo/two-knobs/prompts.jsonl

    Example: refusal prompts check xstest_prompts.csv --dataset xstest
    """
    from experiments.prompt_check import check
    from extract.errors import UserError

    if file is None and dataset is None:
        raise UserError("nothing to check: give a prompt FILE, or --dataset NAME (refusal prompts sets lists them)")
    record = check(file, dataset)
    if as_json:
        _print_json(record)
        return
    for key, value in record.items():
        typer.echo(f"{key:<36} {value}")


@prompts_app.command("sets")
def prompts_sets(as_json: Json = False) -> None:
    """List the public sets known by name: licence, prompts by label, and where to get them.

    Example: refusal prompts sets
    """
    from extract.description import describe, known_datasets
    from extract.prompts import LABELS

    sets = [describe(name) for name in known_datasets()]
    if as_json:
        kept = ("name", "about", "licence", "url", "hub", "citation")
        _print_json([{key: getattr(one, key) for key in kept} | {"prompts": one.counts()} for one in sets])
        return
    row = "{:<12} {:<13} {:>7} {:>8} {:>10}  {}"
    typer.echo(row.format("name", "licence", *LABELS, "where to get it"))
    for one in sets:
        counts = [one.counts().get(label, "-") for label in LABELS]
        typer.echo(row.format(one.name, one.licence, *counts, f"hub: {one.hub}, or {one.url}" if one.hub else one.url))


@organism_app.command("build")
def organism_build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped organism, or a YAML specification's path.")],
    out: Out = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Retrain an organism from its specification; weights that miss it are not written.

    Example: refusal organism build two-knobs --out organisms/zoo/two-knobs
    """
    from organisms.build import build, find_spec
    from organisms.spec import load_spec

    spec = load_spec(find_spec(name))
    directory = out or Path("organisms/zoo") / spec.name
    if dry_run:
        tokens = spec.training.steps * spec.training.batch_size * 45
        typer.echo(f"would train {spec.name}: {spec.training.steps} steps, about {tokens / 1e6:.1f} M tokens, "
                   f"about {spec.training.steps / 110:.0f} minutes on 2 CPU cores, into {directory}")  # fmt: skip
        return
    with _bar(f"training {spec.name}", spec.training.steps) as advance:
        outcome = build(find_spec(name), directory, progress=lambda step, losses: advance(1))
    if as_json:
        _print_json({"measured": outcome.measured, "missed": outcome.missed,
                     "directory": str(outcome.directory) if outcome.directory else None})  # fmt: skip
    else:
        for key, value in outcome.measured.items():
            typer.echo(f"{key:<36} {value:.3f}")
    if outcome.missed:
        for line in outcome.missed:
            typer.echo(f"missed: {line}", err=True)
        typer.echo(f"refusal: {spec.name} missed its specification; nothing was written", err=True)
        raise typer.Exit(1)
    typer.echo(f"written to {outcome.directory}", err=True)


@contextmanager
def _bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    from experiments.progress import Reporter

    with Reporter().task(description, total) as advance:
        yield advance


def _stages(config: Path, overrides: list[str], out: Path | None, until: str, as_json: bool, dry_run: bool) -> None:
    from experiments.command import run_command

    run_command(config, overrides, out, until, as_json=as_json, dry_run=dry_run)


def _print_json(record: Any) -> None:
    import json

    typer.echo(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
