"""What `refusal run` is given: a configuration, or a model with the shipped settings that suit it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.run.config import RunConfig, load_config
from extract.errors import UserError
from extract.model.adapter import CONFIG, base_of, is_adapter
from extract.model.known_models import known_model
from extract.shipped import ROOT, resolve_shipped
from extract.yaml_file import parse_yaml

REAL, ORGANISM = Path("configs/chat-model.yaml"), Path("configs/quickstart.yaml")
TUNED = Path("configs/models")
HELD_OUT = "prompts.jsonl"  # of a taught adapter
GGUF, PACKAGE = ".gguf", "package:"
FILES = (".yaml", ".yml", ".json", ".jsonl", ".csv", ".parquet", ".txt", ".toml", ".py", ".h5")  # never a hub id's end
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class ModelSettings:
    """The shipped settings for a model that was named instead of a configuration."""

    model: str
    base: Path  # the shipped configuration
    prompts: Path
    organism: bool
    adapter: str | None = None  # the directory of a LoRA adapter of that model

    @property
    def name(self) -> str:
        last = (self.adapter or self.model).removeprefix(PACKAGE).rstrip("/").rsplit("/", 1)[-1].removesuffix(GGUF)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-") or "model"

    @property
    def overrides(self) -> list[str]:
        given = {"name": self.name, "model.name": self.model, "prompts.path": str(self.prompts)}
        given |= {} if self.adapter is None else {"model.adapter": self.adapter}
        return [f"{key}={json.dumps(value)}" for key, value in given.items()]  # JSON is YAML

    @property
    def described(self) -> str:
        what = "an organism: its own prompts" if self.organism else "a model: prompts for real models"
        if self.adapter is not None:
            held_out = self.prompts == Path(self.adapter) / HELD_OUT
            what = f"an adapter of {self.model}: {'its held-out prompts' if held_out else 'prompts for real models'}"
        return (
            f"{self.adapter or self.model} is {what} ({self.prompts}), settings of {self.base}; another choice: "
            "refusal init --model"
        )


def settings_for(target: str) -> ModelSettings | None:
    """Return the settings for a model; None where the target has to be a configuration.

    An organism runs on its own prompts, a taught adapter on its held-out ones, with its base. For another model the
    file in configs/models that names it counts, else configs/chat-model.yaml.
    """
    if not is_model(target):
        return None
    if is_adapter(target):
        return _of_adapter(target.rstrip("/"))
    folder = resolve_shipped(Path(target))
    if (folder / "truth.json").is_file() and (folder / "prompts.jsonl").is_file():
        return ModelSettings(target, ORGANISM, Path(target) / "prompts.jsonl", organism=True)
    base = _tuned().get(target, REAL)
    return ModelSettings(target, base, Path(_read(base)["prompts"]["path"]), organism=False)


def is_model(target: str) -> bool:
    """Return whether a name is a model's; what ends like a file, or lies in a folder here, is a mistyped path."""
    path = resolve_shipped(Path(target))
    if target.startswith(PACKAGE) or known_model(target) is not None:
        return True
    if path.exists():
        if path.is_file():
            return path.suffix == GGUF
        return any((path / name).is_file() for name in ("config.json", CONFIG)) or any(path.glob(f"*{GGUF}"))
    inside = resolve_shipped(Path(target).parent).exists()
    return HUB_ID.fullmatch(target) is not None and not target.endswith((*FILES, GGUF)) and not inside


def load_target(target: str, overrides: Sequence[str]) -> tuple[RunConfig, ModelSettings | None]:
    """Return the configuration that a configuration file or a model stands for, and what was chosen for a model."""
    chosen = settings_for(target)
    if chosen is None:
        return load_config(target, overrides), None
    return load_config(chosen.base, [*chosen.overrides, *overrides]), chosen


def _of_adapter(target: str) -> ModelSettings:
    """Return the settings for an adapter: of the shipped configuration that names it, else as for another model."""
    folder, base = resolve_shipped(Path(target)), base_of(target)
    here = base is not None and (known_model(base) or resolve_shipped(Path(base)).exists())
    if base is None or not (here or base.startswith(PACKAGE) or HUB_ID.fullmatch(base)):
        why = "does not name its base model" if base is None else f"has the base {base!r}, which is not here"
        raise UserError(f"the adapter {target} {why}; name the base: refusal run BASE --set model.adapter={target}")
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        shipped = _read(path)
        if (shipped.get("model") or {}).get("adapter") == target:
            return ModelSettings(base, path.relative_to(ROOT), Path(shipped["prompts"]["path"]), False, target)
    settings = _tuned().get(base, REAL)
    held_out = Path(target) / HELD_OUT if (folder / HELD_OUT).is_file() else Path(_read(settings)["prompts"]["path"])
    return ModelSettings(base, settings, held_out, False, target)


def _tuned() -> dict[str, Path]:
    """Return the configuration in configs/models of each model; the first by name where there are several."""
    files = sorted((ROOT / TUNED).glob("*.yaml"), key=lambda path: path.stem, reverse=True)
    return {_read(path)["model"]["name"]: TUNED / path.name for path in files}


def _read(path: Path) -> dict:  # a shipped file
    values: dict = parse_yaml(resolve_shipped(path).read_text(encoding="utf-8"))
    return values
