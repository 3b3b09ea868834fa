"""The stages of a run in order; each is skipped where it is done and nothing it depends on has changed."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.completions import write_completions
from experiments.config import RunConfig
from experiments.context import Context
from experiments.dissociate import dissociate
from experiments.judges.config import load_judge
from experiments.manifest import Manifest, file_hash, inputs_hash
from experiments.probing import probe
from experiments.progress import Reporter
from experiments.reading import check_folds
from experiments.report import report
from experiments.results import write_results
from experiments.side_effects import texts
from experiments.steer import steer
from experiments.trigger_stage import triggers
from extract.edit import site
from extract.errors import UserError
from extract.extraction import extract, versions
from extract.loading import resolve
from extract.prompts import prompts_hash
from extract.thinking import split_thinking


@dataclass(frozen=True)
class Stage:
    """One step: what it does, which parts of the configuration it reads, and the files that prove it done."""

    name: str
    run: Callable[[Context], None]
    sections: tuple[str, ...]
    outputs: tuple[str, ...]


def _extract(context: Context) -> None:
    settings, rendered = context.config.extract, context.rendered  # a template that fails does so before the bar
    with context.reporter.task("extracting activations", len(context.prompts)) as advance:
        done = 0

        def progress(now: int, _total: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        extract(
            context.model,
            context.prompts,
            rendered,
            context.file("activations.h5"),
            site=site(settings.site),
            layers=settings.layers,
            positions=settings.positions,
            response_tokens=settings.response_tokens,
            store_dtype=settings.store_dtype,  # type: ignore[arg-type]
            token_budget=settings.token_budget,
            rows_per_shard=settings.rows_per_shard,
            shared=context.shared,
            progress=progress,
            say=context.reporter.say,
        )


def _respond(context: Context) -> None:
    rows = np.arange(len(context.prompts)).tolist()
    with context.reporter.task("plain completions", len(rows)) as advance:
        said = context.speaker.complete(rows, advance=advance)
    write_completions(said, context.file("completions.jsonl"))
    if cut := sum(not split_thinking(completion.completion).closed for completion in said):
        context.reporter.say(f"{cut} of {len(said)} completions end amid their thought and cannot be judged; give them "
                             f"more than {context.config.generate.max_new_tokens} generate.max_new_tokens")  # fmt: skip


SELECTION = ("n_selection", "max_kl", "kl_tokens", "positions", "deepest", "form", "layers", "tokens")  # of dissociate
STAGES = (
    Stage("extract", _extract, ("model", "extract"), ("activations.h5",)),
    Stage("respond", _respond, ("model", "generate", "judge"), ("completions.jsonl",)),
    Stage("triggers", triggers, ("seed", "prompts"), ("stages/triggers.json", "stages/trigger_projection.json",
                                                      "attributions.jsonl")),
    Stage("probe", probe, ("selection",), ("probes.parquet", "directions.safetensors",
                                                              "stages/geometry.json", "stages/probe.json")),
    Stage("dissociate", dissociate, ("seed", "dissociate"), ("stages/dissociate.json",)),
    Stage("steer", steer, ("steer",), ("dials.safetensors", "completions_steered.jsonl", "stages/steer.json")),
    Stage("results", write_results, (), ("results.json",)),
    Stage("report", report, (), ("report.html",)),
)  # fmt: skip


def run(
    config: RunConfig,
    directory: Path,
    *,
    until: str = "report",
    shared: bool = False,
    reporter: Reporter | None = None,
) -> list[str]:
    """Run the stages up to and with `until`; return the names of those that did any work.

    With `shared`, other processes may extract into the same run directory at the same time.

    Raises:
        UserError: the directory cannot be written, or an input is at fault.
    """
    context = Context(config, directory, reporter or Reporter(), shared)
    _ = context.prompts  # checked before anything is written
    if until != "extract":
        check_folds(context.corpus, config.seed)
    _section(config, "judge")  # and so is what judges
    _section(config, "dissociate")  # the texts beside it too
    source = model_source(config)
    _prepare(directory, config)
    manifest = Manifest(directory / "manifest.json")
    worked, inputs = [], inputs_hash(prompts_hash(context.prompts), source, version())
    for stage in STAGES:
        inputs = inputs_hash(inputs, {name: _section(config, name) for name in stage.sections})
        if not manifest.is_done(stage.name, inputs, stage.outputs):
            started = time.monotonic()
            _invalidate(context, stage)
            _describe(manifest, context)
            stage.run(context)
            manifest.mark(stage.name, inputs, stage.outputs, time.monotonic() - started)
            worked.append(stage.name)
        if stage.name == until:
            break
    return worked


def version() -> str:
    """Return this project's version."""
    return importlib.metadata.version("refusal-probes")


def model_source(config: RunConfig) -> Any:
    """Identify the model without loading it: a directory's files and their times, or hub id and revision.

    A template file given beside it counts as one of its files.
    """
    path, template = Path(resolve(config.model.name)), config.model.template
    beside = [file_hash(Path(template))] if template else []
    if path.is_dir():
        files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(path.iterdir()) if f.is_file()]
        return [*files, *beside]
    return [config.model.name, config.model.revision, *beside]


def _prepare(directory: Path, config: RunConfig) -> None:
    try:
        (directory / "stages").mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise UserError(
            f"cannot write the run directory {directory}: {error.strerror}; choose another with --out"
        ) from None


def _section(config: RunConfig, name: str) -> Any:
    if name == "selection":
        return config.dissociate.model_dump(mode="json", include=set(SELECTION))
    value = getattr(config, name)
    if name == "judge" and value != "rules":  # what its file says counts, not where it lies
        value = load_judge(value)
    if name == "dissociate":
        given = value.directions
        return value.model_dump(mode="json") | texts(value) | {"directions": file_hash(given) if given else None}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _invalidate(context: Context, stage: Stage) -> None:
    """Drop what earlier, different runs of this stage and of those after it left, on disk and in this context."""
    for later in STAGES[STAGES.index(stage) :]:
        for name in later.outputs:
            if name != "activations.h5":
                context.file(name).unlink(missing_ok=True)
    if stage.name == "respond":
        context.__dict__.pop("behaviour", None)


def _describe(manifest: Manifest, context: Context) -> None:
    model = context.model
    manifest.describe(
        versions=versions() | {"refusal-probes": version()},
        device=str(model.device),
        dtype=str(model.dtype),
        seed=context.config.seed,
        model={"name": model.name, "revision": model.revision, "weights": model.fingerprint()}
        | context.config.model.model_dump(mode="json", include={"template", "template_args", "system"}),
        prompts=prompts_hash(context.prompts),
    )
