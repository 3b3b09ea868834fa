"""`refusal push` and `refusal pull`."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from refusal.cli.options import Json, print_json, visible
from refusal.cli.program import program

if TYPE_CHECKING:
    from refusal.cli.hub.contents import Shared

Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="A model repository of the hub.")]


def push(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory, a directory or file of dials or directions, or an adapter (organism teach).",
        ),
    ],
    repo: Repo,
    base: Annotated[
        str | None,
        typer.Option(metavar="OWNER/MODEL", help="The model they are for, where it is a directory of this machine."),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Licence of the files on the card, e.g. apache-2.0; none by default."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the files and the model card; send nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Push dials, directions or a taught adapter to the Hugging Face hub, with a model card; never whole models.

    The card says what was measured: rates before and after, certificates, verdicts, caveats, and how to use the files.

    Example: refusal push runs/quickstart OWNER/NAME --dry-run

    Example: refusal push organisms/taught/smollm2-natural OWNER/NAME --licence apache-2.0 --private
    """
    from extract.shipped import resolve_shipped
    from refusal.cli.hub import contents

    contents.check_id(repo)
    source = resolve_shipped(source)
    shared = contents.shared_in(source)
    named = contents.name_elsewhere(source, shared, base)
    if not dry_run:
        contents.check_can_push()
    results, caveats = contents.run_facts(source, named)
    measured = results.model.weights if results else ""
    if measured and shared.weights and measured != shared.weights:
        raise UserError(f"{source}: its files are for other weights than its results.json; run it again")
    card = contents.card_text(repo, shared, named, results, caveats, licence)
    what = f"{' and '.join(shared.parts)} for {named}"
    with _staged(shared, named, card) as files:
        sizes = {file.name: file.stat().st_size for file in files}
        address = None if dry_run else contents.upload(repo, files, what, private=private)
    if as_json:
        about = {"repo": repo, "pushed": not dry_run, "url": address, "base": named, "weights": shared.weights}
        print_json(about | {"files": sizes, "card": card})
        return
    typer.echo(f"{'would push' if dry_run else 'pushed'} {what} to {repo}:")
    for name, size in sizes.items():
        typer.echo(f"  {name:<28} {size:>10,} bytes")
    if dry_run:
        typer.echo(f"\n{contents.CARD}:\n\n{card}")
    else:
        typer.echo(f"Page: {address}")


def pull(
    repo: Repo,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory of the files; by default pulled/NAME.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="REVISION", help="A branch, tag or commit; by default the newest.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Pull dials, directions or a taught adapter from the Hugging Face hub; checks them, and says how to use them.

    Example: refusal pull OWNER/NAME --out dials
    """
    from extract.atomic_write import make_folder, unwritable
    from refusal.cli.hub import contents

    contents.check_id(repo)
    folder = out or Path("pulled") / repo.rpartition("/")[2]
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and not an empty directory; choose another one: --out DIR")
    with tempfile.TemporaryDirectory() as scratch:
        fetched = Path(scratch)
        commit = contents.download(repo, revision, fetched)
        try:
            shared, (named, expected) = contents.shared_in(fetched), contents.origin_of(fetched)
        except UserError as error:
            raise UserError(str(error).replace(str(fetched), repo)) from None
        names = [*shared.paths, *([contents.CARD] if (fetched / contents.CARD).is_file() else [])]
        make_folder(folder)
        try:
            for name in names:
                shutil.copyfile(fetched / name, folder / name)
        except OSError as error:
            raise unwritable(folder, error) from None
    base, weights = (None if text is None else visible(text) for text in (named or shared.base, shared.weights))
    if as_json:
        about = {"repo": repo, "commit": commit, "directory": str(folder), "files": names, "holds": shared.parts}
        print_json(about | {"base": base, "weights": weights})
    else:
        typer.echo(
            f"pulled {' and '.join(shared.parts)} of {repo} (commit {commit[:12]}) into {folder}: {', '.join(names)}"
        )
        typer.echo(f"for {base or 'a model that is not named'}, weights {weights or 'not recorded'}")
        words = ["chat", base or "MODEL", "--dials" if shared.grade is None else "--adapter", str(folder)]
        in_python = f'refusal.load_directions("{folder}/directions.safetensors") in Python'
        by_command = shared.grade is not None or shared.dials
        typer.echo(f"Use: {f'{program()} {shlex.join(words)}' if by_command else in_python}")
    if shared.weights is not None and expected not in (None, shared.weights):
        typer.echo(f"refusal: the card says weights {visible(str(expected))}, the files are for {weights}", err=True)


@contextmanager
def _staged(shared: Shared, base: str, card: str) -> Iterator[list[Path]]:
    """Copy what is pushed into a folder; paths of this machine in it give way to the model's name."""
    from dataclasses import replace

    from refusal.cli.hub import contents
    from steering.direction_file import save_directions

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, path in shared.paths.items():
            if name == contents.DIRECTIONS:
                named = [replace(one, provenance={**one.provenance, "model": base}) for one in shared.directions]
                save_directions(named, folder / name)
            elif name == contents.CONFIG:
                config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base}
                (folder / name).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
            elif name != contents.SPEC or shared.base == base:
                shutil.copyfile(path, folder / name)
        (folder / contents.CARD).write_text(card, encoding="utf-8")
        yield sorted(folder.iterdir())
