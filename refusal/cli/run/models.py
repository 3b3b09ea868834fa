"""`refusal models`: what can be run here without a download, and what the shipped configurations need."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer

from refusal.cli.options import Json

Kind = Literal["organism", "taught", "configuration", "cached"]
TITLES: dict[Kind, str] = {
    "organism": "Organisms, shipped (known mechanism; not evidence about real models)",
    "taught": "Taught adapters, shipped",
    "configuration": "Configurations for models of the hub",
    "cached": "Models in the hub's cache",
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)  # qwen2.5-1.5b-instruct
BYTES = 2  # of a parameter, in bfloat16


@dataclass(frozen=True)
class Runnable:
    """Something that `refusal run` takes."""

    kind: Kind
    target: str  # what to write after `refusal run`
    size: int | None  # bytes of the weights, where known
    needs: str  # what is missing here, and what it is


def add_models(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def models(as_json: Json = False) -> None:
        """List what can be run here: shipped organisms and configurations, and models in the hub's cache.

        Example: refusal models
        """
        found = runnable()
        if as_json:
            typer.echo(json.dumps([asdict(one) for one in found], indent=1))
            return
        for kind, title in TITLES.items():
            rows = [one for one in found if one.kind == kind]
            if rows:
                typer.echo(title)
            for one in rows:
                size = (
                    ""
                    if one.size is None
                    else f"{one.size / 1e9:.1f} GB"
                    if one.size >= 1e8
                    else f"{one.size / 1e6:.0f} MB"
                )
                typer.echo(f"  {one.target:<46} {size:>8}  {one.needs}".rstrip())
        from refusal.cli.program import program

        typer.echo(f"Run one: {program()} run {found[0].target}    what it takes: --dry-run")


def runnable() -> list[Runnable]:
    """Return all of them: organisms, taught adapters, configurations, cached models."""
    cached = hub_models()
    return [
        *_organisms(),
        *_taught(),
        *_configurations(set(cached)),
        *(Runnable("cached", name, size, "") for name, size in sorted(cached.items())),
    ]


def hub_models(cache: Path | None = None) -> dict[str, int]:
    """Return the models in the hub's cache by id, with the bytes of their files; asks no server.

    Args:
        cache: its folder, by default the user's.
    """
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir(cache).repos
    except (CacheNotFound, ValueError):
        return {}
    found = {}
    for repo in repos:
        names = {file.file_name for revision in repo.revisions for file in revision.files}
        if repo.repo_type == "model" and "config.json" in names and any(n.endswith(".safetensors") for n in names):
            found[repo.repo_id] = repo.size_on_disk
    return found


def _organisms() -> list[Runnable]:
    from extract.shipped import ROOT

    folders = sorted(path.parent for path in (ROOT / "organisms" / "zoo").glob("*/truth.json"))
    folders.sort(key=lambda folder: folder.name != "two-knobs")  # the first one to run
    return [
        Runnable("organism", _shown(folder), (folder / "model.safetensors").stat().st_size, "") for folder in folders
    ]


def _taught() -> list[Runnable]:
    from extract.shipped import ROOT
    from refusal.cli.run.target import PACKAGE

    found = []
    for path in sorted((ROOT / "organisms" / "taught").glob("*/adapter_config.json")):
        base, folder = str(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]), _shown(path.parent)
        missing = _not_installed(base.removeprefix(PACKAGE)) if base.startswith(PACKAGE) else ""
        found.append(Runnable("taught", folder, path.with_name("adapter_model.safetensors").stat().st_size, missing))
    return found


def _not_installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    if find_spec("peft") is None:
        return "needs: pip install 'refusal-probes[models]'"
    try:
        version(package)
    except PackageNotFoundError:
        return f"needs: pip install --no-deps {package}"
    return ""


def _configurations(cached: set[str]) -> list[Runnable]:
    from extract.shipped import ROOT
    from extract.yaml_file import parse_yaml

    found = []
    for path in sorted((ROOT / "configs" / "models").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        model = parse_yaml(text)["model"]["name"]
        billions = SIZE.search(model)
        size = round(float(billions[1]) * BYTES * 1e9) if billions else None
        gated = " after its licence is accepted on the hub" if "ated:" in text or "be gated" in text else ""
        needs = f"{model}, in the cache" if model in cached else f"downloads {model}{gated}"
        found.append(Runnable("configuration", _shown(path), size, needs))
    return found


def _shown(path: Path) -> str:
    from extract.shipped import ROOT

    return str(path.relative_to(ROOT))
