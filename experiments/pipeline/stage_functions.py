"""The function of each stage. Imports torch; which stages have to run is known without it (graph.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from shutil import rmtree

import numpy as np

from experiments.categories.judge import judge as judge_categories
from experiments.categories.measure import measure_categories
from experiments.cluster.ray_pool import RayPool
from experiments.dials.read import read_tokens
from experiments.dials.stage import steer
from experiments.dissociation.elicited_measure import measure_elicited
from experiments.dissociation.judge import dissociate, gate_open
from experiments.dissociation.measure import measure_effects, measure_rank
from experiments.elicited.elicit import elicit
from experiments.pipeline.results import write_results
from experiments.probing.stage import probe
from experiments.report.stage import report
from experiments.responses.loaded_run import LoadedRun, described
from experiments.run.completion_file import saved_tokens, write_completions
from experiments.run.manifest import Manifest
from experiments.triggers.judge import judge_triggers
from experiments.triggers.measure import measure_triggers
from experiments.uncertainty.stage import uncertainty
from extract.chat.thinking import split_thinking
from extract.errors import UserError
from extract.extraction import extract, identify, store_spec
from extract.store.activation_store import ActivationStore
from extract.store.file_lock import shard_folder
from extract.store.identity import first_difference
from scoring.judges.rules import RuleJudge
from scoring.rates import FIRST, first_line, first_rows, joint_rates

# Of each of the first answers: by the rules 98 % of the 0.5B's 250 answers are after 16 tokens what they are after 24.
# A run whose answers are that short takes the first ones for its own.
FIRST_TOKENS, SHORT = 16, 24


def first_rates(loaded: LoadedRun) -> None:
    """Say the joint rates of FIRST answers, drawn alike from each label, before all else."""
    if loaded.pool is not None or loaded.config.answers_first or len(loaded.prompts) <= FIRST:
        return
    labels = [prompt.label for prompt in loaded.prompts]
    rows = first_rows(labels, loaded.config.seed)
    of_run = loaded.completer  # answers end as the run's own do, which are then these, if they are that short
    settled_within = of_run.settled_within if isinstance(of_run.judge, RuleJudge) else 0
    completer = replace(
        of_run,
        judge=RuleJudge(),
        settled_within=settled_within,
        max_new_tokens=of_run.max_new_tokens if of_run.max_new_tokens <= SHORT else FIRST_TOKENS,
        batch_size=min(of_run.batch_size, FIRST // 2),  # of prompts of about one length: less padding
    )
    with loaded.reporter.task("answering", len(rows)) as advance:
        actions = [completion.action for completion in completer.complete(rows, advance=advance)]
    loaded.reporter.say(first_line(joint_rates([labels[row] for row in rows], actions, loaded.corpus.groups[rows])))


def _extract(loaded: LoadedRun) -> None:
    said = _said(loaded) if loaded.config.answers_first else None
    if isinstance(loaded.pool, RayPool):
        loaded.pool.fill_store(said)
        return
    read = loaded.reading
    rendered = read.rendered  # a template error comes before the progress bar
    path = loaded.file("activations.h5")
    if path.is_file() and _holds_fewer(path, loaded):
        loaded.reporter.say("more prompts are read than before, and those again")
        path.unlink()
        rmtree(shard_folder(path), ignore_errors=True)  # a flat store has none
    given = loaded.model, read.prompts, rendered, path, loaded.config.extract
    with loaded.reporter.counted("extracting activations", resumed=True) as progress:
        extract(*given, kept=loaded.kept, said=said, progress=progress, say=loaded.reporter.say)


def _holds_fewer(path: Path, loaded: LoadedRun) -> bool:
    """Return whether a store is of some of the prompts, and else the same, as a shorter budget leaves it."""
    read = loaded.reading
    spec = store_spec(loaded.model, read.prompts, read.rendered, loaded.config.extract)
    wanted = identify(loaded.model, read.prompts, read.rendered, spec)
    try:
        with ActivationStore(path, open_shards=False) as store:
            fewer = {*store.prompt_ids} < {prompt.id for prompt in read.prompts}
            same = wanted.model_copy(update={"tokens": store.identity.tokens})
            return fewer and first_difference(store.identity.text, same) is None
    except UserError:  # which extraction raises, too
        return False


def _said(loaded: LoadedRun) -> list[list[int]]:
    """Return the plain response to each prompt that is read, for its thought: whole, if the run answers it."""
    read = loaded.reading
    completer = replace(loaded.completer, prompts=read.prompts, rendered=read.rendered)
    with loaded.reporter.task("answers, to capture their thoughts", len(read.prompts)) as advance:
        return completer.plain_tokens(loaded.answered, loaded.config.extract.thought_tokens, advance)


def check_extraction(loaded: LoadedRun) -> None:
    """Raise UserError if the model or the prompts have no such layers or positions; nothing is computed."""
    store_spec(loaded.model, loaded.reading.prompts, loaded.reading.rendered, loaded.config.extract)


def _respond(loaded: LoadedRun) -> None:
    rows = np.arange(len(loaded.prompts)).tolist()
    with loaded.reporter.task("plain completions", len(rows)) as advance:
        completions = loaded.completer.complete(rows, advance=advance)
    write_completions(completions, loaded.file("completions.jsonl"))
    if saved := saved_tokens(completions, loaded.config.generate.max_new_tokens):
        loaded.reporter.say(
            f"{len(saved)} of {len(completions)} completions ended once settled, which saves at most {sum(saved):,} "
            "tokens"
        )
    if cut := sum(not split_thinking(completion.completion).closed for completion in completions):
        loaded.reporter.say(
            f"{cut} of {len(completions)} completions end within their thought and cannot be judged; "
            f"set generate.max_new_tokens above {loaded.config.generate.max_new_tokens}"
        )


FUNCTIONS: dict[str, Callable[[LoadedRun], None]] = {
    # a stage that judges takes `RunInputs` and so cannot use a model; a stage that measures takes `LoadedRun`
    "extract": _extract,
    "respond": _respond,
    "elicit": elicit,
    "uncertainty": uncertainty,
    "trigger_measures": measure_triggers,
    "triggers": judge_triggers,
    "probe": probe,
    "effects": measure_effects,
    "rank": measure_rank,
    "elicited": measure_elicited,
    "dissociate": dissociate,
    "category_effects": measure_categories,
    "categories": judge_categories,
    "gate_open": gate_open,
    "steer": steer,
    "results": write_results,
    "token_readings": read_tokens,
    "report": report,
}


def describe(manifest: Manifest, loaded: LoadedRun) -> None:
    """Record the versions, the device, the model and the prompts of a run whose model is loaded, here or in workers."""
    if isinstance(loaded.pool, RayPool) and loaded.pool.started:
        manifest.describe(**asdict(loaded.pool.facts[0].description), cluster=loaded.pool.described)
    elif "model" in vars(loaded):  # a stage that judges loads none
        manifest.describe(**asdict(described(loaded)))
