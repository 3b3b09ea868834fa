"""`refusal prompts`: check prompts, list and mix the public sets. Heavy imports happen inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Json, SetsFolder, print_json
from refusal.cli.stdin import StandardInput

prompts_app: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Check prompts; list and mix the public sets known by name."
)


@prompts_app.command("check")
def prompts_check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A prompt file, or a local copy of a public set; - for stdin.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="A public set; without FILE it is read from the hub.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Validate prompts: balance, pairs, duplicates, and shortcuts that a probe trained on them could use.

    Example: refusal prompts check organisms/zoo/two-knobs/prompts.jsonl

    Example: refusal prompts check --dataset xstest
    """
    from experiments.prompt_check.check import check, print_check

    if file is None and dataset is None:
        raise UserError("nothing to check: give a prompt FILE, or --dataset NAME (refusal prompts sets lists them)")
    with StandardInput() as given:
        report = check(given.file(file), dataset)
    if as_json:
        print_json(report.to_dict())
        return
    print_check(report)


@prompts_app.command("sets")
def prompts_sets(as_json: Json = False) -> None:
    """List the public sets known by name: licence, number of prompts by label, and source.

    Sets marked * were never tried here on their own files: only the hub has them.

    Example: refusal prompts sets
    """
    from extract.prompts.dataset import describe, known_datasets
    from extract.prompts.prompt import LABELS

    sets = [describe(name) for name in known_datasets()]
    if as_json:
        kept = "name about licence url hub untested citation".split()
        print_json([{key: getattr(one, key) for key in kept} | {"prompts": one.counts()} for one in sets])
        return
    wide = [max(len(getattr(one, field)) for one in sets) + 1 for field in ("name", "licence")]
    row = f"{{:<{wide[0]}}} {{:<{wide[1]}}} {{:>7}} {{:>8}} {{:>10}}  {{}}"
    typer.echo(row.format("name", "licence", *LABELS, "where to get it"))
    for one in sets:
        counts = [one.counts().get(label, "-") for label in LABELS]
        source = f"hub: {one.hub}, or {one.url}" if one.hub else one.url
        typer.echo(row.format(one.name + "*" * one.untested, one.licence, *counts, source))
    if any(one.untested for one in sets):
        typer.echo("* untested here: the description was never tried on the set's own files")


@prompts_app.command("mix")
def prompts_mix(
    sources: Annotated[list[str], typer.Argument(metavar="SET|FILE…", help="Public sets by name, or prompt files.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The prompt file to write, .jsonl.")],
    each: Annotated[int, typer.Option(min=1, help="Prompts of each label.")] = 100,
    sets: SetsFolder = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
) -> None:
    """Draw one balanced set from several: as many of each label, evenly from each source, whole groups first.

    Example: refusal prompts mix xstest selfaware --sets my-sets --each 200 --out mixed.jsonl
    """
    from collections import Counter

    from extract.atomic_write import write_jsonl
    from extract.prompts.groups import groups_of
    from extract.prompts.prompt import ALL_LABELS, load_prompts, prompt_row
    from extract.prompts.sources import DatasetConfig, mixed
    from scoring.evaluation.suite import Suite, prompts_of

    if out.suffix != ".jsonl":
        raise UserError(f"--out {out}: prompts are written as JSON Lines; name the file .jsonl")
    files = [one for one in sources if Path(one).is_file()]
    prompts = [prompt for file in files for prompt in load_prompts(file)]
    if named := tuple(DatasetConfig(name=one) for one in sources if one not in files):
        prompts += prompts_of(Suite(datasets=named), sets)
    drawn = mixed(prompts, each, seed)
    ids, parts = {prompt.id for prompt in drawn}, dict[int, set[bool]]()
    for prompt, group in zip(prompts, groups_of(prompts).tolist(), strict=True):
        parts.setdefault(group, set()).add(prompt.id in ids)
    write_jsonl(out, map(prompt_row, drawn))
    counts = Counter((prompt.source or "own prompts", prompt.label) for prompt in drawn)
    labels = [label for label in ALL_LABELS if any(label == one for _, one in counts)]
    for source in dict.fromkeys(source for source, _ in counts):
        typer.echo(f"{source:<20} " + "; ".join(f"{label} {counts[source, label]}" for label in labels))
    if cut := sum(len(both) == 2 for both in parts.values()):
        typer.echo(f"{cut} groups (pairs and the like) are in it in part, since whole ones would not balance")
    typer.echo(str(out))
