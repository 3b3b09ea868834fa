"""Runs the stages of a run; a stage is skipped if it has finished and its inputs are unchanged."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import yaml

from experiments.dials.stage import FILES, steer
from experiments.dissociation.gate_open import gate_open
from experiments.dissociation.judge import dissociate
from experiments.dissociation.measure import measure_effects, measure_rank
from experiments.pipeline.graph import Stage, dependents, in_order
from experiments.pipeline.results import write_results
from experiments.probing.read_probes import check_folds
from experiments.probing.stage import probe
from experiments.report.stage import report
from experiments.responses.loaded_run import LoadedRun
from experiments.run.completion_file import write_completions
from experiments.run.config import RunConfig
from experiments.run.manifest import Manifest, file_hash, inputs_hash
from experiments.run.organism_prompts import on_another_model, warning
from experiments.side_effects.measure import text_hashes
from experiments.triggers.judge import judge_triggers
from experiments.triggers.measure import measure_triggers
from experiments.uncertainty.stage import uncertainty
from extract.atomic_write import write_text
from extract.chat.thinking import split_thinking
from extract.errors import UserError
from extract.extraction import extract, versions
from extract.model.chat_model import ChatModel
from extract.model.edit import site
from extract.model.source.adapter import find_adapter
from extract.model.source.name import resolve
from extract.progress import Reporter
from extract.prompts.prompt import prompts_hash
from scoring.judges.config import load_judge


def _extract(loaded: LoadedRun) -> None:
    settings, rendered = loaded.config.extract, loaded.rendered  # a template error comes before the progress bar
    with loaded.reporter.task("extracting activations", len(loaded.prompts)) as advance:
        done = 0

        def progress(now: int, _total: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        extract(
            loaded.model,
            loaded.prompts,
            rendered,
            loaded.file("activations.h5"),
            site=site(settings.site),
            layers=settings.layers,
            positions=settings.positions,
            response_tokens=settings.response_tokens,
            thought_tokens=settings.thought_tokens,
            store_dtype=settings.store_dtype,
            token_budget=settings.token_budget,
            rows_per_shard=settings.rows_per_shard,
            shared=loaded.shared,
            progress=progress,
            say=loaded.reporter.say,
        )


def _respond(loaded: LoadedRun) -> None:
    rows = np.arange(len(loaded.prompts)).tolist()
    with loaded.reporter.task("plain completions", len(rows)) as advance:
        completions = loaded.completer.complete(rows, advance=advance)
    write_completions(completions, loaded.file("completions.jsonl"))
    if cut := sum(not split_thinking(completion.completion).closed for completion in completions):
        loaded.reporter.say(f"{cut} of {len(completions)} completions end within their thought and cannot be judged; "
                            f"set generate.max_new_tokens above {loaded.config.generate.max_new_tokens}")  # fmt: skip


VERDICT = ("margin", "alpha")  # keys of dissociate that only the verdict depends on
SELECTION = ("n_selection", "max_kl", "kl_tokens", "positions", "deepest", "form", "layers", "tokens")  # of dissociate
STAGES = (
    Stage("extract", _extract, (), ("model", "extract"), ("activations.h5",)),
    Stage("respond", _respond, (), ("model", "generate", "judge"), ("completions.jsonl",)),
    Stage("uncertainty", uncertainty, ("respond",), ("seed", "sampling"),
          ("uncertainty.jsonl", "prompts_by_model.jsonl", "stages/uncertainty.json")),
    Stage("trigger_measures", measure_triggers, ("extract", "respond"), ("seed", "prompts", "triggers"),
          ("stages/trigger_measures.json", "stages/trigger_projection.json", "attributions.jsonl")),
    Stage("triggers", judge_triggers, ("trigger_measures",), (), ("stages/triggers.json",)),
    Stage("probe", probe, ("extract", "respond"), ("seed", "prompts", "selection"),
          ("probes.parquet", "directions.safetensors", "stages/geometry.json", "stages/probe.json")),
    Stage("effects", measure_effects, ("probe",), ("seed", "measuring"), ("stages/effects.json",)),
    Stage("rank", measure_rank, ("probe",), ("seed", "ranking"), ("stages/rank.json", "rank_directions.safetensors")),
    Stage("dissociate", dissociate, ("effects",), ("verdict",), ("stages/dissociate.json",)),
    Stage("gate_open", gate_open, ("probe",), ("measuring",), ("stages/gate_open.json",)),
    Stage("steer", steer, ("probe",), ("steer",), FILES),
    Stage("results", write_results, ("triggers", "dissociate", "gate_open", "steer"), ("uncertainty",),
          ("results.json",)),
    Stage("report", report, ("results",), (), ("report.html",)),
)  # fmt: skip


def stages_of(config: RunConfig) -> tuple[Stage, ...]:
    """Return the graph of a run; sampled uncertainty and the rank are read only if the configuration asks for them."""
    more = {"results": "uncertainty"} if config.uncertainty.samples else {}
    more |= {"dissociate": "rank"} if config.dissociate.rank != 1 else {}
    return tuple(replace(s, reads=(*s.reads, more[s.name])) if s.name in more else s for s in STAGES)


def run(
    config: RunConfig,
    directory: Path,
    *,
    until: str = "report",
    shared: bool = False,
    reporter: Reporter | None = None,
    model: ChatModel | None = None,
) -> list[str]:
    """Run a stage and those it reads from; skip stages that have finished and are unchanged; return the names that ran.

    Args:
        shared: other processes may extract into the same run directory at the same time.
        model: the configured model, where it is already loaded.

    Raises:
        UserError: the directory cannot be written, or an input is invalid.
    """
    loaded = LoadedRun(config, directory, reporter or Reporter(), shared)
    if model is not None:
        loaded.__dict__["model"] = model
    if on_another_model(config, loaded.prompts):  # reads the prompts, so they are checked before anything is written
        loaded.reporter.say(warning(config.model.name))
    stages = stages_of(config)
    wanted = in_order(stages, [until])
    if {stage.name for stage in wanted} & {"trigger_measures", "probe"}:  # extraction and uncertainty take any labels
        check_folds(loaded.corpus, config.seed)
    check_files(config)
    source = model_source(config)
    with _prepared(directory, config):
        manifest = Manifest(directory / "manifest.json")
        worked, inputs = [], _inputs(config, stages, prompts_hash(loaded.prompts), source, version())
        for stage in wanted:
            if not manifest.is_done(stage.name, inputs[stage.name], stage.outputs):
                started = time.monotonic()
                _invalidate(loaded, dependents(stages, stage.name))
                stage.run(loaded)
                if loaded.has_model:  # a stage that judges loads none
                    _describe(manifest, loaded)
                manifest.mark(stage.name, inputs[stage.name], stage.outputs, time.monotonic() - started)
                worked.append(stage.name)
    return worked


def check_files(config: RunConfig) -> None:
    """Check the judge's file, the texts of the side effects, and the directions of a configuration.

    Raises:
        UserError: one of them is missing or malformed.
    """
    given = config.dissociate.directions
    if given is not None and not given.is_file():
        raise UserError(f"dissociate.directions: no file {given}; directions are made by: refusal probe CONFIG")
    for name in ("judge", "measuring"):
        _section(config, name)


def _inputs(config: RunConfig, stages: Sequence[Stage], *source: Any) -> dict[str, str]:
    """Hash the inputs of each stage: the source, its own sections, and the inputs of the stages it reads."""
    hashed: dict[str, str] = {}
    for stage in in_order(stages, [stage.name for stage in stages]):
        sections = {name: _section(config, name) for name in stage.sections}
        hashed[stage.name] = inputs_hash(source, sections, [hashed[name] for name in stage.reads])
    return hashed


def version() -> str:
    """Return this project's version."""
    return importlib.metadata.version("refusal-probes")


def model_source(config: RunConfig) -> Any:
    """Identify the model without loading it: a directory's files and their times, or hub id and revision.

    A configured template file and the files of an adapter count as some of its files.
    """
    path, template, adapter = Path(resolve(config.model.name)), config.model.template, config.model.adapter
    besides: list[Any] = [file_hash(Path(template))] if template else []
    besides += [file_hash(file) for file in sorted(find_adapter(adapter).glob("adapter_*"))] if adapter else []
    if path.is_dir():
        files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(path.iterdir()) if f.is_file()]
        return [*files, *besides]
    return [config.model.name, config.model.revision, *besides]


@contextmanager
def _prepared(directory: Path, config: RunConfig) -> Iterator[None]:
    """Make the run directory; remove it if the block fails before a stage has written anything."""
    made = not directory.exists()
    try:
        (directory / "stages").mkdir(parents=True, exist_ok=True)
        write_text(directory / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise UserError(
            f"cannot write the run directory {directory}: {error.strerror}; choose another with --out"
        ) from None
    try:
        yield
    except BaseException:
        files = {path.name for path in directory.iterdir()}
        if made and files == {"config.yaml", "stages"} and not any((directory / "stages").iterdir()):
            rmtree(directory, ignore_errors=True)
        raise


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


def _invalidate(loaded: LoadedRun, stages: Sequence[Stage]) -> None:
    """Delete the outputs of earlier, different runs of these stages, on disk and in memory; a store is resumed."""
    for stage in stages:
        for name in stage.outputs:
            if name != "activations.h5":
                loaded.file(name).unlink(missing_ok=True)
    if stages[0].name == "respond":
        for name in ("completions", "behaviour"):
            loaded.__dict__.pop(name, None)


def _describe(manifest: Manifest, loaded: LoadedRun) -> None:
    model = loaded.model
    manifest.describe(
        versions=versions() | {"refusal-probes": version()},
        device=str(model.device),
        dtype=str(model.dtype),
        seed=loaded.config.seed,
        model={"name": model.name, "revision": model.revision, "weights": model.fingerprint()}
        | loaded.config.model.model_dump(mode="json", include={"adapter", "template", "template_args", "system"}),
        prompts=prompts_hash(loaded.prompts),
    )
