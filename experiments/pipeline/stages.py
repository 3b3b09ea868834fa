"""The stages of a run in order; each is skipped where it is done and nothing it depends on has changed."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.dials.stage import FILES, steer
from experiments.dissociation.gate_open import gate_open
from experiments.dissociation.stage import dissociate
from experiments.pipeline.results import write_results
from experiments.probing.read_probes import check_folds
from experiments.probing.stage import probe
from experiments.report.document_of_run import report
from experiments.responses.completions import write_completions
from experiments.responses.context import Context
from experiments.run.config import RunConfig
from experiments.run.manifest import Manifest, file_hash, inputs_hash
from experiments.side_effects.measure import texts
from experiments.triggers.stage import triggers
from experiments.uncertainty.stage import uncertainty
from extract.atomic_write import write_text
from extract.chat.thinking import split_thinking
from extract.errors import UserError
from extract.extraction import extract, versions
from extract.model.edit import site
from extract.model.loading import resolve
from extract.progress import Reporter
from extract.prompts.prompt import prompts_hash
from scoring.judges.config import load_judge


@dataclass(frozen=True)
class Stage:
    """One step: what it does, which parts of the configuration it reads, and the files that prove it done.

    A stage that `needs` others by name stands beside the rest: it is run where it is asked for, after those alone, and
    none of the others follows from it.
    """

    name: str
    run: Callable[[Context], None]
    sections: tuple[str, ...]
    outputs: tuple[str, ...]
    needs: tuple[str, ...] = ()


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


SAID = ("respond", "uncertainty")  # they follow from the model and the prompts, not from activations
SELECTION = ("n_selection", "max_kl", "kl_tokens", "positions", "deepest", "form", "layers", "tokens")  # of dissociate
STAGES = (
    Stage("extract", _extract, ("model", "extract"), ("activations.h5",)),
    Stage("respond", _respond, ("model", "generate", "judge"), ("completions.jsonl",)),
    Stage("uncertainty", uncertainty, ("seed", "sampling"), ("uncertainty.jsonl", "prompts_by_model.jsonl",
                                                              "stages/uncertainty.json"), needs=("respond",)),
    Stage("triggers", triggers, ("seed", "prompts"), ("stages/triggers.json", "stages/trigger_projection.json",
                                                      "attributions.jsonl")),
    Stage("probe", probe, ("selection",), ("probes.parquet", "directions.safetensors",
                                                              "stages/geometry.json", "stages/probe.json")),
    Stage("dissociate", dissociate, ("seed", "dissociate"), ("stages/dissociate.json",)),
    Stage("gate_open", gate_open, (), ("stages/gate_open.json",)),
    Stage("steer", steer, ("steer",), FILES),
    Stage("results", write_results, ("uncertainty",), ("results.json",)),
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
    stages = _stages(config, until)
    if until not in ("extract", "uncertainty"):  # these two take any labels
        check_folds(context.corpus, config.seed)
    _section(config, "judge")  # and so is what judges
    _section(config, "dissociate")  # the texts beside it too
    source = model_source(config)
    _prepare(directory, config)
    manifest = Manifest(directory / "manifest.json")
    worked, inputs = [], _inputs(config, prompts_hash(context.prompts), source, version())
    for stage in stages:
        if not manifest.is_done(stage.name, inputs[stage.name], stage.outputs):
            started = time.monotonic()
            standing = [s for s in STAGES if s.name in SAID and manifest.is_done(s.name, inputs[s.name], s.outputs)]
            _invalidate(context, stage, standing if stage.name == "extract" else [])
            _describe(manifest, context)
            stage.run(context)
            manifest.mark(stage.name, inputs[stage.name], stage.outputs, time.monotonic() - started)
            worked.append(stage.name)
    return worked


def _inputs(config: RunConfig, *source: Any) -> dict[str, str]:
    """Hash what each stage depends on: the source, its own sections, and what those before it depend on."""
    hashed, before = {}, inputs_hash(*source)
    for stage in STAGES:
        hashed[stage.name] = inputs_hash(before, {name: _section(config, name) for name in stage.sections})
        before = before if stage.needs else hashed[stage.name]
    return hashed


def _stages(config: RunConfig, until: str) -> list[Stage]:
    """List what is to be done up to and with a stage; one that stands beside the others, only if it is asked for."""
    last = next(stage for stage in STAGES if stage.name == until)
    if last.needs:
        return [stage for stage in STAGES if stage.name in last.needs or stage is last]
    asked = {"uncertainty": config.uncertainty.samples > 0 and until in ("results", "report")}
    return [stage for stage in STAGES[: STAGES.index(last) + 1] if not stage.needs or asked[stage.name]]


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
        write_text(directory / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise UserError(
            f"cannot write the run directory {directory}: {error.strerror}; choose another with --out"
        ) from None


def _section(config: RunConfig, name: str) -> Any:
    if name == "selection":
        return config.dissociate.model_dump(mode="json", include=set(SELECTION))
    if name == "sampling":
        return config.uncertainty.drawn.model_dump(mode="json")
    value = getattr(config, name)
    if name == "judge" and value != "rules":  # what its file says counts, not where it lies
        value = load_judge(value)
    if name == "dissociate":
        given = value.directions
        return value.model_dump(mode="json") | texts(value) | {"directions": file_hash(given) if given else None}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _invalidate(context: Context, stage: Stage, standing: Sequence[Stage] = ()) -> None:
    """Drop what earlier, different runs of this stage and of those after it left, on disk and in this context.

    Args:
        standing: later stages that are done and do not come from what this one writes.
    """
    for later in [stage] if stage.needs else STAGES[STAGES.index(stage) :]:
        for name in later.outputs if later not in standing else ():
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
