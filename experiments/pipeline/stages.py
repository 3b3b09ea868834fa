"""Runs the stages of a run; a stage is skipped if it has finished and its inputs are unchanged.

torch is imported when the first stage runs, so that a run with nothing to do says so at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import yaml

from experiments.pipeline.graph import Stage, chosen_judge, dependents, in_order, read_inputs, stages_of
from experiments.run.config import AUTO, RunConfig
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import warning
from experiments.run.run_lock import LOG, RunLock, RunLog
from extract.atomic_write import make_folder, unwritable, write_text
from extract.background import call_in_subprocess
from extract.errors import UserError
from extract.model.loading_options import quiet_libraries
from extract.progress import Reporter

if TYPE_CHECKING:
    from experiments.cluster.connection import WorkersWanted
    from experiments.responses.loaded_run import LoadedRun
    from extract.model.chat_model import ChatModel

SHARED = ("model", "kept")  # of a `LoadedRun`, between runs of one model and the same prompts
FOLDED = {"trigger_measures", "probe", "category_effects"}  # stages that divide prompts into folds


def run(
    config: RunConfig,
    directory: Path,
    *,
    until: str = "report",
    reporter: Reporter | None = None,
    model: ChatModel | None = None,
    wanted_workers: WorkersWanted | None = None,
    opened: list[LoadedRun] | None = None,
) -> list[str]:
    """Run a stage and those it reads from; skip stages that have finished and are unchanged; return the names that ran.

    `model` is the configured one, where it is already loaded. Runs that are given the same `opened`, first empty, share
    the model and what is kept of its prompts: each takes them from the last, and is added. Wanted Ray workers share
    extraction, completions and nulls. UserError: the directory cannot be written or another process writes into it, or
    an input is invalid.
    """
    reporter, own_process = reporter or Reporter(), wanted_workers is not None  # the workers hold the prompts
    config = choose_judge(config, directory, until, reporter, alone=not own_process)
    read = call_in_subprocess(read_inputs, config) if own_process else read_inputs(config)  # checked before any writing
    notes = [warning(config.model.name)] if read.on_another_model else []
    for note in notes:
        reporter.say(note)
    manifest, wanted = Manifest(directory / "manifest.json"), in_order(stages_of(config), [until])

    def is_done(stage: Stage) -> bool:
        return manifest.is_done(stage.name, read.hashes[stage.name], stage.outputs)

    _check_prompts(config, directory, {stage.name for stage in wanted if not is_done(stage)})
    with _prepared(directory), RunLock(directory) as lock:
        left = {stage.name for stage in wanted if not is_done(stage)}
        if not left:
            _write_config(directory, config)
            return []
        from experiments.cluster.ray_pool import RayPool
        from experiments.pipeline.stage_functions import check_extraction
        from experiments.responses.loaded_run import LoadedRun

        loaded = LoadedRun(config, directory)
        shared = {name: vars(last)[name] for last in (opened or [])[-1:] for name in SHARED if name in vars(last)}
        loaded.__dict__ |= shared if model is None else shared | {"model": model}
        pool = nullcontext() if wanted_workers is None else closing(RayPool(config, directory, wanted_workers))
        with pool as loaded.pool:
            if "extract" in left and wanted_workers is None and manifest.path.is_file():
                with reporter.stage("opening the model"):  # a layer that does not exist costs no files
                    check_extraction(loaded)
            _write_config(directory, config)
            log = RunLog(directory)
            with log.recording():
                for note in notes:
                    log.write(f"Note: {note}")
                worked = _work(loaded, wanted, is_done, replace(reporter, log=log.write), lock, read.hashes)
        if opened is not None:
            opened.append(loaded)
        return worked


def choose_judge(
    config: RunConfig, directory: Path, until: str, reporter: Reporter, *, alone: bool = True
) -> RunConfig:
    """Return the configuration with the judge that `auto` stands for; as it is where it names one.

    With workers, not `alone`, it stands for the rules: many answer, and one process judges.
    """
    if config.judge != AUTO:
        return config
    if (judge := chosen_judge(config, directory, until)) is None and not alone:
        judge = "rules"
    if judge is None:
        with reporter.stage("choosing the judge") as choosing:
            quiet_libraries()
            from experiments.pipeline.plan import afforded_judge

            judge = afforded_judge(config, until, choosing)
    return config.model_copy(update={"judge": judge})


def _work(
    loaded: LoadedRun,
    wanted: Sequence[Stage],
    is_done: Callable[[Stage], bool],
    reporter: Reporter,
    lock: RunLock,
    inputs: dict[str, str],
) -> list[str]:
    """Run the stages that are not done, in order; return their names."""
    from experiments.pipeline.stage_functions import FUNCTIONS, check_extraction, describe, first_rates

    manifest, worked = Manifest(loaded.file("manifest.json")), []
    left, budget = {stage.name for stage in wanted if not is_done(stage)}, loaded.config.budget
    if "extract" in left and ("respond" in left or (budget is not None and not budget.answered)):
        with reporter.stage("first rates") as loaded.reporter:
            if loaded.pool is None:  # a layer that does not exist costs no answers
                check_extraction(loaded)
            first_rates(loaded)
    for place, stage in enumerate(wanted, 1):
        if is_done(stage):
            continue
        started, step = time.monotonic(), f"{place}/{len(wanted)} {stage.name}" if len(wanted) > 1 else stage.name
        lock.at(step)
        earlier = manifest.read()["stages"].get(stage.name, {})
        _invalidate(loaded, [stage])
        with reporter.stage(step) as loaded.reporter:
            if loaded.pool is not None:
                loaded.pool.reporter = loaded.reporter
            FUNCTIONS[stage.name](loaded)
        outputs = manifest.outputs(stage.outputs)
        if (earlier.get("inputs"), earlier.get("outputs")) != (inputs[stage.name], outputs):  # not a lost file remade
            later = dependents(stages_of(loaded.config), stage.name)
            _invalidate(loaded, [other for other in later if other.name != stage.name])
        describe(manifest, loaded)
        manifest.mark(stage.name, inputs[stage.name], outputs, time.monotonic() - started)
        worked.append(stage.name)
    return worked


def _check_prompts(config: RunConfig, directory: Path, to_do: set[str]) -> None:
    """Raise UserError if the stages to do need prompts that there are not; extraction and uncertainty take any."""
    if FOLDED & to_do:
        from experiments.categories.members import check_names
        from experiments.probing.read_probes import check_folds
        from experiments.run.inputs import RunInputs

        inputs = RunInputs(config, directory)
        check_folds(inputs.corpus, config.seed)
        if "category_effects" in to_do:
            check_names(config.categories.only, inputs.prompts)


@contextmanager
def _prepared(directory: Path) -> Iterator[None]:
    """Make the run directory; remove it if bad input ends the block before a stage has written anything."""
    made = not directory.exists()
    make_folder(directory / "stages")
    try:
        yield
    except (UserError, ModuleNotFoundError):  # the latter: an extra is not installed
        files = {path.name for path in directory.iterdir()}
        if made and files <= {"config.yaml", "stages", LOG} and not any((directory / "stages").iterdir()):
            rmtree(directory, ignore_errors=True)
        raise


def _write_config(directory: Path, config: RunConfig) -> None:
    """Write config.yaml where it has changed."""
    text, path = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), directory / "config.yaml"
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    except OSError as error:
        raise unwritable(path, error) from None


def _invalidate(loaded: LoadedRun, stages: Sequence[Stage]) -> None:
    """Delete the outputs of earlier, different runs of these stages, on disk and in memory; a store is resumed."""
    for stage in stages:
        for name in stage.outputs:
            if name != "activations.h5":
                loaded.file(name).unlink(missing_ok=True)
    if any(stage.name == "respond" for stage in stages):
        for name in ("completions", "behaviour"):
            loaded.__dict__.pop(name, None)
