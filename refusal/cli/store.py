"""`refusal store`: inspect, verify and export activation stores. Heavy imports happen inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from extract.errors import UserError
from extract.run_directory import file_of_run
from refusal.cli.options import Json, print_result, wrapped

Store = Annotated[Path, typer.Argument(metavar="FILE", help="An activations.h5, a run directory, or a flat file.")]

store_app: typer.Typer = typer.Typer(no_args_is_help=True, help="Inspect, verify and export activation stores.")


@store_app.command("info")
def store_info(file: Store, as_json: Json = False) -> None:
    """Print the contents of a store: model, site, layers, positions, prompts.

    Example: refusal store info runs/quickstart/activations.h5
    """
    from extract.store.activation_store import ActivationStore

    with ActivationStore(file_of_run(file, "activations.h5")) as store:
        record = store.describe().to_dict()
    lines = (wrapped(f"{key:<16} {_plain(value)}", 17) for key, value in record.items())
    print_result(record, lines, as_json=as_json)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@store_app.command("verify")
def store_verify(
    file: Store,
    model: Annotated[str | None, typer.Option(help="Compare with this model's weights: a hub id or directory.")] = None,
    revision: Annotated[str | None, typer.Option(help="The hub revision of that model.")] = None,
    dtype: Annotated[str, typer.Option(help="Data type of the run's weights.")] = "auto",
    adapter: Annotated[str | None, typer.Option(metavar="DIR", help="The LoRA adapter of that model.")] = None,
    as_json: Json = False,
) -> None:
    """Read a whole store and verify it: checksums, digests, counts, NaN, presence, identity; exit code 1 on a fault.

    Example: refusal store verify runs/quickstart/activations.h5 --model organisms/zoo/two-knobs
    """
    from extract.model.loading import load_model
    from extract.model.loading_options import DType, quiet_libraries
    from extract.progress import Reporter
    from extract.store.integrity import verify

    if dtype not in get_args(DType):
        raise UserError(f"--dtype is {dtype!r}; expected one of {', '.join(get_args(DType))}")
    if adapter is not None and model is None:
        raise UserError("--adapter needs the model that it belongs to: give --model NAME")
    file, weights = file_of_run(file, "activations.h5"), None
    if model is not None:
        quiet_libraries()
        weights = load_model(model, revision=revision, adapter=adapter, dtype=dtype).fingerprint()
    with Reporter().counted(f"verifying {file.name}") as progress:
        result = verify(file, weights=weights, progress=progress)
    print_result(vars(result) | {"ok": not result.findings}, result.findings, as_json=as_json)
    if result.findings:
        typer.echo(f"refusal: {file} has {len(result.findings)} fault{'s' * (len(result.findings) > 1)}", err=True)
        raise typer.Exit(1)
    if not as_json:
        typer.echo(
            f"{file} is intact: {result.prompts} prompts, {result.shards} shards, {result.loci} slices, "
            f"{result.bytes / 1e6:.1f} MB of activations, digest {result.digest[:16]}"
        )


@store_app.command("export")
def store_export(
    file: Store,
    to: Annotated[Path, typer.Option("--to", metavar="OUT.h5", help="The flat file to write, or a directory for it.")],
    as_json: Json = False,
) -> None:
    """Copy a store into one flat file, to move or publish: the same layout without shards.

    Example: refusal store export runs/quickstart/activations.h5 --to quickstart.h5
    """
    from extract.progress import Reporter
    from extract.store.writer import export

    file = file_of_run(file, "activations.h5")
    to = to / file.name if to.is_dir() else to
    with Reporter().counted(f"exporting {file.name}") as progress:
        export(file, to, progress=progress)
    size = to.stat().st_size
    print_result({"written": str(to), "bytes": size}, [f"{to}: {size / 1e6:.1f} MB"], as_json=as_json)
