"""What each stage depends on, as one hash a stage; reads no model and imports no torch."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.pipeline.graph import Stage, in_order, stages_of
from experiments.run.config import RunConfig
from experiments.run.manifest import file_hash, inputs_hash
from experiments.run.organism_prompts import on_another_model
from experiments.side_effects.texts import text_hashes
from extract.errors import UserError
from extract.model.adapter import find_adapter
from extract.model.source import locate
from extract.prompts.prompt import Prompt, prompts_hash
from extract.prompts.sources import read_prompts
from scoring.judges.config import load_judge

VERDICT = ("margin", "alpha")  # keys of dissociate that only the verdict depends on
SELECTION = ("n_selection", "max_kl", "kl_tokens", "positions", "deepest", "form", "layers", "tokens")  # of dissociate


def stage_inputs(config: RunConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """Return the hash of everything that each stage of a run depends on.

    Raises:
        UserError: there is no such model or adapter, or a file that the configuration names is missing or malformed.
    """
    check_sections(config)
    return hash_inputs(config, stages_of(config), prompts_hash(list(prompts)), model_source(config), version())


@dataclass(frozen=True)
class ReadInputs:
    """What a command has to know of its prompts before it runs."""

    hashes: dict[str, str]  # what each stage depends on
    on_another_model: bool  # the prompts are an organism's, and the model is not that organism


def read_inputs(config: RunConfig) -> ReadInputs:
    """Read and check the prompts; see `stage_inputs`."""
    prompts = read_prompts(config.prompts, config.seed)
    return ReadInputs(stage_inputs(config, prompts), on_another_model(config, prompts))


def hash_inputs(config: RunConfig, stages: Sequence[Stage], *source: Any) -> dict[str, str]:
    """Hash the inputs of each stage: the source, its own sections, and the inputs of the stages it reads."""
    hashed: dict[str, str] = {}
    for stage in in_order(stages, [stage.name for stage in stages]):
        sections = {name: _section(config, name) for name in stage.sections}
        hashed[stage.name] = inputs_hash(source, sections, [hashed[name] for name in stage.reads])
    return hashed


def check_sections(config: RunConfig) -> None:
    """Check the judge's file, the texts of the side effects, and the directions of a configuration.

    Raises:
        UserError: one of them is missing or malformed.
    """
    given = config.dissociate.directions
    if given is not None and not given.is_file():
        raise UserError(f"dissociate.directions: no file {given}; directions are made by: refusal probe CONFIG")
    _section(config, "judge")
    _section(config, "measuring")


def version() -> str:
    """Return this project's version."""
    return importlib.metadata.version("refusal-probes")


def model_source(config: RunConfig) -> Any:
    """Identify the model without opening it: its files and their times, or hub id and revision.

    A configured template file and the files of an adapter count as some of its files.
    """
    path, template, adapter = locate(config.model.name), config.model.template, config.model.adapter
    besides: list[Any] = [file_hash(Path(template))] if template else []
    besides += [file_hash(file) for file in sorted(find_adapter(adapter).glob("adapter_*"))] if adapter else []
    if path is not None:
        files = [f for f in sorted(path.iterdir()) if f.is_file()] if path.is_dir() else [path]
        return [*((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files), *besides]
    return [config.model.name, config.model.revision, *besides]


def _section(config: RunConfig, name: str) -> Any:
    if name == "verdict":
        return config.dissociate.model_dump(mode="json", include=set(VERDICT))
    if name == "selection":
        return config.dissociate.model_dump(mode="json", include=set(SELECTION))
    if name == "ranking":
        settings, given = config.dissociate, config.dissociate.directions
        searched = settings.model_dump(mode="json", include={*VERDICT, *SELECTION, "rank"})
        return searched | {"directions": file_hash(given) if given else None}
    if name == "sampling":
        return config.uncertainty.with_default_samples.model_dump(mode="json")
    if name == "measuring":
        settings, given = config.dissociate, config.dissociate.directions
        measured = settings.model_dump(mode="json", exclude={*VERDICT, "rank"})
        return measured | text_hashes(settings) | {"directions": file_hash(given) if given else None}
    value = getattr(config, name)
    if name == "judge" and value != "rules":  # the content of its file counts, not its path
        value = load_judge(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
