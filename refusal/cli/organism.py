"""`refusal organism`: list the organisms, take, retrain or teach one. Heavy imports happen inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from extract.shipped import named_yaml
from refusal.cli.options import DryRun, Json, print_result, wrapped

SpecName = Annotated[str, typer.Argument(metavar="NAME", help="A shipped specification, or a YAML file's path.")]

organism_app: typer.Typer = typer.Typer(
    no_args_is_help=True, help="List, take and retrain organisms: small models with a known, planted mechanism."
)


@organism_app.command("get")
def organism_get(
    name: Annotated[str, typer.Argument(help="An organism, or a taught model.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR|URL|OWNER/NAME", help="A clone, the URL of one, or a hub repository."),
    ] = None,
    build: Annotated[bool, typer.Option("--build", help="Train and grade it here instead; takes minutes.")] = False,
    as_json: Json = False,
) -> None:
    """Put an organism that the wheel leaves out into the cache; every file is checked by its SHA-256.

    Its name in commands stays organisms/zoo/NAME.

    Example: refusal organism get xor --from ~/refusal-probes
    """
    from extract.shipped import cache_folder
    from organisms.listing import SPECS, fetch, installed

    folder = installed(name)
    if folder is None and build:
        kind, make = ("zoo", organism_build) if (SPECS / f"{name}.yaml").is_file() else ("taught", organism_teach)
        return make(name, cache_folder() / "organisms" / kind / name, as_json)
    if folder is None and source is None:
        raise UserError(f"where {name} is to be taken from is not given; give --from DIR|URL|OWNER/NAME, or --build")
    folder = folder or fetch(name, str(source))
    print_result({"name": name, "directory": str(folder)}, [folder], as_json=as_json)


@organism_app.command("build")
def organism_build(
    name: SpecName,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write; by default organisms/zoo/NAME.")
    ] = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Retrain an organism from its specification; weights that miss the specification are not written.

    Example: refusal organism build two-knobs --out organisms/zoo/two-knobs
    """
    from extract.progress import Reporter
    from organisms.build import build
    from organisms.listing import SPECS
    from organisms.spec import load_spec

    path = named_yaml(name, SPECS, "organism")
    spec = load_spec(path)
    directory = out or Path("organisms/zoo") / spec.name
    if dry_run:
        tokens = spec.training.steps * spec.training.batch_size * 45
        typer.echo(
            f"would train {spec.name}: {spec.training.steps} steps, about {tokens / 1e6:.1f} M tokens, "
            f"about {spec.training.steps / 110:.0f} minutes on 2 CPU cores, into {directory}"
        )
        return
    with Reporter().task(f"training {spec.name}", spec.training.steps) as advance:
        outcome = build(path, directory, progress=lambda step, losses: advance(1))
    written = str(outcome.directory) if outcome.directory else None
    record = {"measured": outcome.measured, "missed": outcome.missed, "directory": written}
    print_result(record, (f"{key:<36} {value:.3f}" for key, value in outcome.measured.items()), as_json=as_json)
    if outcome.missed:
        for line in outcome.missed:
            typer.echo(f"missed: {line}", err=True)
        typer.echo(f"refusal: {spec.name} missed its specification; nothing was written", err=True)
        raise typer.Exit(1)
    typer.echo(f"written to {outcome.directory}", err=True)


@organism_app.command("teach")
def organism_teach(
    name: SpecName,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write; by default organisms/taught/NAME.")
    ] = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Teach a pretrained chat model to decline, by a LoRA adapter, and grade it on held-out prompts.

    Example: refusal organism teach smollm2-natural --out organisms/taught/smollm2-natural
    """
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter
    from organisms.listing import TAUGHT_SPECS
    from organisms.teaching.spec import load_teach_spec
    from organisms.teaching.teach import teach

    quiet_libraries()
    path = named_yaml(name, TAUGHT_SPECS, "taught model")
    spec = load_teach_spec(path)
    directory = out or Path("organisms/taught") / spec.name
    if dry_run:
        typer.echo(
            f"would teach {spec.base} by an adapter of rank {spec.lora.rank}, {spec.training.epochs} epochs "
            f"over {spec.taught_share:.0%} of {spec.prompts}, into {directory}"
        )
        return
    graded = teach(path, directory, Reporter())
    shares = (f"{key:<40} {share:.1%}, n {share.n}" for key, share in graded.shares.items())
    print_result(graded.to_dict(), shares, as_json=as_json)
    typer.echo(f"written to {directory}", err=True)


@organism_app.command("list")
def organism_list(as_json: Json = False) -> None:
    """List organisms and taught models: what is planted, the right verdicts, the size of the weights, the directory.

    Example: refusal organism list
    """
    from organisms.listing import shipped_organisms

    shipped, lines = shipped_organisms(), list[str]()
    for one in shipped:
        right = ", ".join(verdict.replace("_", " ") for verdict in (one.dissociation, one.triggers) if verdict)
        take = f"take it with: refusal organism get {one.name}"
        where = f"{one.megabytes} MB in {one.directory}" if one.megabytes else take
        about = (one.about, f"right verdicts: {right or 'none'}", where)
        lines += [one.name, *(wrapped(f"  {line}", 2) for line in about)]
    print_result([one.to_dict() for one in shipped], lines, as_json=as_json)
