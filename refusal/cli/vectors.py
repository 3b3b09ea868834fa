"""`refusal vectors`: control vectors of other tools in and out. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from extract.run_directory import file_of_run, is_run
from refusal.cli.options import Json, print_result

if TYPE_CHECKING:
    from probes.direction import Direction

FILE = "directions.safetensors"
Source = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FILE",
        help="A run directory, a .safetensors, .gguf or .pt file of directions, or the directory of heretic's adapter.",
    ),
]
Names = Annotated[
    list[str],
    typer.Option(
        "--direction", metavar="NAME", help="Which one, or several by a pattern such as 'happy_*'; repeatable."
    ),
]
NO_NAMES: list[str] = []
NO_LAYERS: list[int] = []

vectors_app = typer.Typer(no_args_is_help=True, help="Read control vectors of other tools, and write them.")


@vectors_app.command("import")
def vectors_import(
    file: Source,
    names: Names = NO_NAMES,
    layer: Annotated[int | None, typer.Option(min=0, help="The block of a direction.pt that does not say it.")] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file of directions to write.")] = Path(FILE),
    as_json: Json = False,
) -> None:
    """Read a control vector of repeng, llama.cpp, steering-vectors, refusal-direction or heretic as directions.

    Example: refusal vectors import happy.gguf --out happy.safetensors

    Example: refusal vectors import mean_diffs.pt --direction 'mean_diffs_14_*' --out arditi.safetensors
    """
    from steering.control_vectors import load_directions, named
    from steering.direction_file import save_directions

    if out.suffix != ".safetensors":
        raise UserError(f"--out {out}: give a name that ends in .safetensors")
    directions = list(named(load_directions(file, layer=layer), names or ["*"], file))
    save_directions(directions, out)
    records = [
        {"name": d.name, "site": d.locus.site, "layer": d.locus.layer, "adds": d.gap, "d_model": len(d.vector)}
        for d in directions
    ]
    lines = [f"{r['name']:<24} {r['site']} layer {r['layer']}, scale 1 adds {r['adds']:.4g}" for r in records]
    print_result(records, [*lines, f"{out}: {len(records)} of d_model {records[0]['d_model']}"], as_json=as_json)


@vectors_app.command("export")
def vectors_export(
    source: Source,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .gguf or .safetensors file to write.")],
    names: Names = NO_NAMES,
    scale: Annotated[float, typer.Option(help="1 adds the distance of the class means, -1 subtracts it.")] = 1.0,
    layers: Annotated[
        list[int],
        typer.Option("--layer", min=0, help="Block to whose output it is added; repeatable; by default its own."),
    ] = NO_LAYERS,
    model_hint: Annotated[str | None, typer.Option(help="Name of the architecture, such as qwen2, for GGUF.")] = None,
    as_json: Json = False,
) -> None:
    """Write directions as a control vector for llama.cpp and others: one tensor direction.N for the output of block N.

    Example: refusal vectors export runs/quickstart --direction normative --scale -1 --out less-refusal.gguf
    """
    from steering.control_vectors import added_vectors, load_directions, named, save_control_vector

    if not math.isfinite(scale):
        raise UserError(f"--scale must be a finite number; got {scale}")
    chosen = named(load_directions(file_of_run(source, FILE) if is_run(source) else source), names, source)
    vectors = added_vectors(chosen, scale, layers)
    save_control_vector(vectors, out, model_hint or _model_hint(chosen))
    record = {f"direction.{layer}": float((vector @ vector) ** 0.5) for layer, vector in vectors.items()}
    lines = [f"{name}: norm {norm:.4g}, added to the output of block {name[10:]}" for name, norm in record.items()]
    use = "; llama.cpp: --control-vector FILE" if out.suffix == ".gguf" else ""
    print_result({"written": str(out), "norms": record}, [*lines, f"{out}: scale {scale:g}{use}"], as_json=as_json)


def _model_hint(directions: Sequence[Direction]) -> str:
    """Return the architecture of the model that directions are of, where its files are here; no program reads it."""
    from extract.model.source import locate

    for direction in directions:
        if hint := direction.provenance.get("model_hint"):
            return str(hint)
        name = str(direction.provenance.get("model") or "")
        path = locate(name) if name else None
        if path is not None and (config := path / "config.json").is_file():
            return str(json.loads(config.read_text(encoding="utf-8")).get("model_type", "unknown"))
    return "unknown"
