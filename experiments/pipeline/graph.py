"""The stages of a run: what each reads, the hash of its inputs, and whether it is done. Imports no torch."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.dials.results import FILES, TOKEN_READINGS
from experiments.run.config import AUTO, QUESTIONS, RunConfig, load_config
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import on_another_model
from experiments.side_effects.texts import text_hashes
from extract.background import call_in_subprocess
from extract.errors import UserError
from extract.keyed_file import content_key, file_hash
from extract.model.adapter import find_adapter
from extract.model.known_models import known_model
from extract.model.source import locate
from extract.prompts.prompt import prompts_hash
from extract.prompts.sources import read_prompts
from scoring.judges.config import LocalConfig, load_judge

VERDICT = ("margin", "alpha")  # keys of dissociate that only the verdict depends on
SELECTION = "n_selection max_kl kl_tokens positions deepest every form layers tokens".split()  # of dissociate


@dataclass(frozen=True)
class Stage:
    """One stage: the stages whose files it reads, its configuration sections, and its output files."""

    name: str
    reads: tuple[str, ...]  # stages
    sections: tuple[str, ...]  # of the configuration
    outputs: tuple[str, ...]


STAGES = tuple(  # each after those it reads
    Stage(name, *(tuple(words.split()) for words in (reads, sections, outputs)))
    for name, reads, sections, outputs in (
        ("extract", "", "model extract read", "activations.h5"),
        ("respond", "", "model generate judge", "completions.jsonl"),
        (
            "elicit",
            "respond",
            "seed prompts extract elicit one-or-two selection",
            "stages/elicit.json outcomes.parquet/elicit.parquet elicited/completions.jsonl elicited/activations.h5 "
            "elicited/directions.safetensors",
        ),
        ("uncertainty", "respond", "seed sampling", "uncertainty.jsonl prompts_by_model.jsonl stages/uncertainty.json"),
        (
            "trigger_measures",
            "extract respond",
            "seed prompts triggers word-or-intent",
            "stages/trigger_measures.json stages/trigger_projection.json attributions.jsonl "
            "outcomes.parquet/trigger_measures.parquet",
        ),
        ("triggers", "trigger_measures", "", "stages/triggers.json"),
        (
            "probe",
            "extract respond",
            "seed prompts selection",
            "probes.parquet directions.safetensors stages/geometry.json stages/probe.json",
        ),
        (
            "effects",
            "probe elicit",
            "seed measuring one-or-two",
            "stages/effects.json outcomes.parquet/effects.parquet",
        ),
        ("rank", "probe", "seed ranking one-or-two", "stages/rank.json rank_directions.safetensors"),
        (
            "elicited",
            "effects elicit",
            "seed measuring elicit one-or-two",
            "stages/elicited.json outcomes.parquet/elicited.parquet",
        ),
        ("dissociate", "effects elicited", "verdict", "stages/dissociate.json"),
        (
            "category_effects",
            "extract respond",
            "seed prompts categories selection",
            "stages/category_effects.json outcomes.parquet/category_effects.parquet",
        ),
        ("categories", "category_effects", "verdict", "stages/categories.json"),
        ("gate_open", "effects", "", "stages/gate_open.json"),
        ("steer", "probe elicit", "steer dials", " ".join(FILES)),
        ("token_readings", "steer", "", TOKEN_READINGS),
        ("results", "triggers dissociate gate_open steer", "uncertainty", "results.json"),
        ("report", "results token_readings", "", "report.html"),
    )
)


def stages_of(config: RunConfig) -> tuple[Stage, ...]:
    """Return the graph of a run; sampled uncertainty and the rank are read only if the configuration asks for them."""
    more = {"results": "uncertainty"} if config.uncertainty.samples else {}
    more |= {"dissociate": "rank"} if config.dissociate.rank != 1 else {}
    return tuple(replace(s, reads=(*s.reads, more[s.name])) if s.name in more else s for s in STAGES)


def in_order(stages: Sequence[Stage], until: Collection[str]) -> list[Stage]:
    """List some stages and all they read from, directly or not; each comes after those it reads, as in `stages`."""
    wanted = set(until)
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted.update(stage.reads)
    return [stage for stage in stages if stage.name in wanted]


def dependents(stages: Sequence[Stage], name: str) -> list[Stage]:
    """List a stage and all stages that read from it, directly or not."""
    after = {name}
    for stage in stages:
        if after.intersection(stage.reads):
            after.add(stage.name)
    return [stage for stage in stages if stage.name in after]


# -- inputs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadInputs:
    """What a command has to know of its prompts before it runs."""

    hashes: dict[str, str]  # of everything that each stage depends on
    on_another_model: bool  # the prompts are an organism's, and the model is not that organism


def read_inputs(config: RunConfig) -> ReadInputs:
    """Read and check prompts and files of a configuration; UserError: one, or the model, is missing or malformed."""
    prompts, directions = read_prompts(config.prompts, config.seed), config.dissociate.directions
    if directions is not None and not directions.is_file():
        raise UserError(f"dissociate.directions: no file {directions}; directions are made by: refusal probe CONFIG")
    for checked in ("judge", "measuring"):
        _section(config, checked)
    source = prompts_hash(list(prompts)), model_source(config), importlib.metadata.version("refusal-probes")
    return ReadInputs(hash_inputs(config, stages_of(config), *source), on_another_model(config, prompts))


def hash_inputs(config: RunConfig, stages: Sequence[Stage], *source: Any) -> dict[str, str]:
    """Hash the inputs of each stage: the source, its own sections, and the inputs of the stages it reads."""
    hashed: dict[str, str] = {}
    for stage in in_order(stages, [stage.name for stage in stages]):
        sections = {name: _section(config, name) for name in stage.sections}
        hashed[stage.name] = content_key(source, sections, [hashed[name] for name in stage.reads])
    return hashed


def model_source(config: RunConfig) -> Any:
    """Identify the model without opening it: by its files and their times, or hub id and revision; and its adapter."""
    path, template, adapter = locate(config.model.name), config.model.template, config.model.adapter
    besides: list[Any] = [file_hash(Path(template))] if template else []
    besides += [file_hash(file) for file in sorted(find_adapter(adapter).glob("adapter_*"))] if adapter else []
    if (known := known_model(config.model.name)) is not None:  # the same before and after it is fetched
        return [known.sha256, *besides]
    if path is not None:
        files = [f for f in sorted(path.iterdir()) if f.is_file()] if path.is_dir() else [path]
        return [*((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files), *besides]
    return [config.model.name, config.model.revision, *besides]


def _section(config: RunConfig, name: str) -> Any:
    settings, directions = config.dissociate, config.dissociate.directions
    directions_hash = {"directions": file_hash(directions) if directions else None}
    included = {"verdict": {*VERDICT}, "selection": {*SELECTION}, "ranking": {*VERDICT, *SELECTION, "rank"}}
    if name in QUESTIONS:
        return name in config.ask
    if name == "read":  # which prompts
        return None if config.read_limit is None else [config.read_limit, config.seed]
    if name in included:
        given = settings.model_dump(mode="json", include=included[name])
        return given | directions_hash if name == "ranking" else given
    if name == "measuring":
        measured = settings.model_dump(mode="json", exclude={*VERDICT, "rank"})
        return measured | text_hashes(settings) | directions_hash
    if name == "judge" and config.judge not in ("rules", AUTO):  # the content of its file counts, not its path
        return load_judge(config.judge).model_dump(mode="json")
    value = config.uncertainty.with_default_samples if name == "sampling" else getattr(config, name)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


# -- what is done ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageState:
    """How far one stage is; a stale one finished with other inputs, or its files have changed since."""

    name: str
    state: Literal["done", "stale", "missing"]
    finished: str | None = None  # ISO 8601, UTC
    seconds: float | None = None


def stage_states(
    config: RunConfig, directory: Path, until: str = "report", *, own_process: bool = False
) -> list[StageState]:
    """Return the state of a stage and of those it reads from, in order.

    With `own_process` the prompts are read in a process of its own, so that this one stays small. UserError: the
    prompts, the model or another file of the configuration is not there, or the manifest is damaged.
    """
    manifest = Manifest(directory / "manifest.json")
    inputs = (call_in_subprocess(read_inputs, config) if own_process else read_inputs(config)).hashes
    marks, states = manifest.read()["stages"], list[StageState]()
    for stage in in_order(stages_of(config), [until]):
        mark = marks.get(stage.name)
        if mark is None:
            states.append(StageState(stage.name, "missing"))
            continue
        later = {state.name for state in states if state.state != "done"}.intersection(stage.reads)  # they run before
        done = not later and manifest.is_done(stage.name, inputs[stage.name], stage.outputs)
        states.append(StageState(stage.name, "done" if done else "stale", mark["finished"], mark["seconds"]))
    return states


def budgeted(config: RunConfig) -> str:
    """Return the hash that names the configuration before the cuts of a budget."""
    return content_key(config.model_dump(mode="json"))


def chosen_judge(config: RunConfig, directory: Path, until: str) -> str | None:
    """Return the judge that `auto` stands for, `auto` where none is needed yet; None where it is to be chosen now."""
    if (directory / "config.yaml").is_file():
        with suppress(UserError):  # of another version
            judge = load_config(directory / "config.yaml").judge
            if judge != AUTO:
                return judge
    if "respond" not in [stage.name for stage in in_order(stages_of(config), [until])]:
        return AUTO
    known = known_model(LocalConfig().model)
    return "rules" if known is not None and not known.path.is_file() else None


def continued(config: RunConfig, directory: Path, minutes: float) -> RunConfig | None:
    """Return the configuration that the same budget chose in this run directory; None if none did."""
    if not (directory / "config.yaml").is_file():
        return None
    try:
        earlier = load_config(directory / "config.yaml")
    except UserError:  # of another version
        return None
    budget = earlier.budget
    return earlier if budget and (budget.of, budget.minutes) == (budgeted(config), minutes) else None
