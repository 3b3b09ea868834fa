"""What `refusal run` is given: a configuration, or a model with the shipped settings that suit it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from experiments.run.config import RunConfig, load_config
from extract.shipped import ROOT, resolve_shipped

REAL, ORGANISM = Path("configs/chat-model.yaml"), Path("configs/quickstart.yaml")
TUNED = Path("configs/models")
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

    @property
    def name(self) -> str:
        """The name of the run, from the model's."""
        last = self.model.removeprefix(PACKAGE).rstrip("/").rsplit("/", 1)[-1].removesuffix(GGUF)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-") or "model"

    @property
    def overrides(self) -> list[str]:
        """What differs from the shipped configuration, as for --set."""
        given = {"name": self.name, "model.name": self.model, "prompts.path": str(self.prompts)}
        return [f"{key}={json.dumps(value)}" for key, value in given.items()]  # JSON is YAML

    @property
    def described(self) -> str:
        """The choice in one line."""
        what = "an organism: its own prompts" if self.organism else "a model: prompts for real models"
        return f"{self.model} is {what} ({self.prompts}), settings of {self.base}; another choice: refusal init --model"


def settings_for(target: str) -> ModelSettings | None:
    """Return the settings for a model; None where the target is no model, and so has to be a configuration.

    An organism runs on its own prompts. For another model the file in configs/models that names it counts, else
    configs/chat-model.yaml.
    """
    if not is_model(target):
        return None
    folder = resolve_shipped(Path(target))
    if (folder / "truth.json").is_file() and (folder / "prompts.jsonl").is_file():
        return ModelSettings(target, ORGANISM, Path(target) / "prompts.jsonl", organism=True)
    base = _tuned().get(target, REAL)
    return ModelSettings(target, base, Path(_read(base)["prompts"]["path"]), organism=False)


def is_model(target: str) -> bool:
    """Return whether a name is a model's: a directory of one, a GGUF file, package:NAME, or a hub id owner/name.

    What ends like a file, or lies in a folder that is here, is a mistyped path and no hub id.
    """
    path = resolve_shipped(Path(target))
    if target.startswith(PACKAGE):
        return True
    if path.exists():
        return path.suffix == GGUF if path.is_file() else (path / "config.json").is_file() or any(path.glob(f"*{GGUF}"))
    inside = resolve_shipped(Path(target).parent).exists()
    return HUB_ID.fullmatch(target) is not None and not target.endswith((*FILES, GGUF)) and not inside


def load_target(target: str, overrides: Sequence[str]) -> tuple[RunConfig, ModelSettings | None]:
    """Return the configuration that a configuration file or a model stands for, and what was chosen for a model.

    Raises:
        UserError: it is neither, or the configuration does not hold.
    """
    chosen = settings_for(target)
    if chosen is None:
        return load_config(target, overrides), None
    return load_config(chosen.base, [*chosen.overrides, *overrides]), chosen


def _tuned() -> dict[str, Path]:
    """Return the configuration in configs/models of each model; the first by name where there are several."""
    files = sorted((ROOT / TUNED).glob("*.yaml"), key=lambda path: path.stem, reverse=True)
    return {_read(path)["model"]["name"]: TUNED / path.name for path in files}


def _read(path: Path) -> dict:  # a shipped file
    found: dict = yaml.safe_load(resolve_shipped(path).read_text(encoding="utf-8"))
    return found
