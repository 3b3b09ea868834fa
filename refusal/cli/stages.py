"""The commands that run stages: configuration, dry run, run, printed results."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.run.config import AUTO, RunConfig
from extract.run_directory import is_run
from refusal.cli.options import CPU_BUDGET, NO_BUDGET, minutes, print_result, wrapped
from refusal.cli.program import program, resumable
from refusal.cli.target import load_target

if TYPE_CHECKING:
    from experiments.cluster.connection import WorkersWanted
    from experiments.pipeline.graph import StageState
    from experiments.pipeline.plan import RunEstimate
    from experiments.responses.loaded_run import LoadedRun
    from extract.progress import Reporter


@resumable()
def run_command(
    path: Path,
    overrides: Sequence[str],
    out: Path | None,
    until: str,
    *,
    as_json: bool,
    dry_run: bool,
    budget: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
    wanted_workers: WorkersWanted | None = None,
) -> None:
    """Run the stages up to `until` and print the results; in a dry run, print the cost alone."""
    config, chosen = load_target(str(path), overrides)
    directory = _of_process(out or (path if is_run(path) else Path("runs") / run_name(config, overrides)), config)
    from experiments.run.run_lock import refuse_if_held
    from extract.model.known_models import refuse_absent
    from extract.progress import Reporter

    asked = None if budget in (None, NO_BUDGET) else minutes(budget)
    reporter = Reporter(quiet=quiet, verbose=verbose)
    if chosen is not None:
        reporter.say(chosen.described)
    if dry_run:
        refuse_absent(config.model.name)
    else:
        refuse_if_held(directory)  # before anything heavy is imported or the model is measured
    workers_extract = wanted_workers is not None and until == "extract"  # which asks for no cut
    unasked = budget is None and chosen is not None and not chosen.organism and not (workers_extract or dry_run)
    config = _cut(config, directory, until, asked, reporter, unasked=unasked, alone=wanted_workers is None)
    if dry_run:
        _dry_run(config, directory, until, reporter, as_json=as_json, with_workers=wanted_workers is not None)
        return
    if _left(config, directory, until, own_process=wanted_workers is not None):
        if wanted_workers is None:  # otherwise workers import them
            quiet_libraries(reporter)
    else:
        reporter.say(f"nothing to do: all stages in {directory} are done and unchanged")
    from experiments.pipeline.stages import run

    opened: list[LoadedRun] = []
    work = partial(run, reporter=reporter, wanted_workers=wanted_workers, opened=opened)
    if config.budget is not None and not config.budget.answered:
        from experiments.pipeline.budget import ANSWERING, fit_questions
        from experiments.pipeline.graph import in_order, stages_of
        from experiments.run.inputs import RunInputs

        for stage in in_order(stages_of(config), [until]):
            if stage.name in ANSWERING:
                work(config, directory, until=stage.name)
        with reporter.stage("fitting the questions into the budget") as fitting:
            config = fit_questions(RunInputs(config, directory), until, fitting)
    work(config, directory, until=until)
    if config.prompts.contrast and until == "dissociate" and not as_json:
        from experiments.report.caveats import contrast_line

        print(wrapped(contrast_line(config.prompts.contrast), 0))
    from refusal.cli.print_results import STAGE_PRINTERS, print_stage, print_summary

    if until == "report":
        print_summary(directory, as_json)
    elif until in STAGE_PRINTERS:
        print_stage(directory, until, as_json, verbose=verbose)
    else:
        show({"written": str(directory / "activations.h5")}, as_json)


def _cut(
    config: RunConfig,
    directory: Path,
    until: str,
    asked: float | None,
    reporter: Reporter,
    *,
    unasked: bool,
    alone: bool,
) -> RunConfig:
    """Return the configuration cut to the minutes `asked` for; `unasked`, to CPU_BUDGET where there is no GPU.

    A judge that is left to choose is chosen first; `alone`: no workers are wanted.
    """
    if config.judge == AUTO:
        from experiments.pipeline.graph import chosen_judge
        from experiments.pipeline.stages import choose_judge

        if chosen_judge(config, directory, until) is None and alone:
            quiet_libraries(reporter)
        config = choose_judge(config, directory, until, reporter, alone=alone)
    if asked is None and not unasked:
        return config
    from experiments.pipeline.graph import continued

    time = minutes(CPU_BUDGET) if asked is None else asked
    if (earlier := continued(config, directory, time)) is not None:
        reporter.say(f"the run in {directory} is continued as its budget of {time:g} minutes cut it")
        return earlier
    if not _left(config, directory, until):  # the whole is done
        return config
    quiet_libraries(reporter)
    if asked is None:
        from experiments.pipeline.machine import has_gpu

        if has_gpu(config.model.device):
            return config
        reporter.say(
            f"no GPU here, so the run is cut to {CPU_BUDGET}; --budget {NO_BUDGET} runs the whole, which may "
            "take many hours (--dry-run says how many)"
        )
    from experiments.pipeline.budget import fit_answers

    with reporter.stage("measuring the model") as measuring:
        return fit_answers(config, until, time, measuring)


def _left(config: RunConfig, directory: Path, until: str, *, own_process: bool = False) -> list[str]:
    """Return the stages that are not done; found out without torch."""
    from experiments.pipeline.graph import stage_states

    states = stage_states(config, directory, until, own_process=own_process)
    return [state.name for state in states if state.state != "done"]


def quiet_libraries(reporter: Reporter) -> None:
    """Silence other libraries; imports them, and says so before, since that takes seconds."""
    if "torch" not in sys.modules:
        reporter.say("loading the libraries")
    from extract.model.loading_options import quiet_libraries as quieten

    quieten()


def _dry_run(
    config: RunConfig, directory: Path, until: str, reporter: Reporter, *, as_json: bool, with_workers: bool
) -> None:
    from experiments.pipeline.graph import stage_states

    states = stage_states(config, directory, until)
    if not as_json and not reporter.verbose and all(state.state == "done" for state in states):
        print(f"nothing to do: all {len(states)} stages in {directory} are done and unchanged")
        return
    quiet_libraries(reporter)
    from experiments.pipeline.plan import estimate

    planned = estimate(config, until, reporter)
    if as_json or reporter.verbose:
        show(planned.record(directory), as_json)
    else:
        for question, answer in _plan_lines(planned, directory, states, with_workers):
            print(f"{question:<15} {answer}")


def _plan_lines(
    planned: RunEstimate, directory: Path, states: Sequence[StageState], with_workers: bool
) -> Iterator[tuple[str, str]]:
    from experiments.pipeline.machine import gigabytes
    from experiments.run.inputs import RunInputs

    done = [state.name for state in states if state.state == "done"]
    answered = RunInputs(planned.config, directory) if "respond" in done else None
    plan = planned.plan(done, answered=answered)
    labels = ", ".join(f"{n:,} {label} of {groups:,}" for label, (n, groups) in planned.by_label.items())
    n = planned.model.parameters
    size = f"{n / 1e9:.1f} B" if n >= 1e9 else f"{n / 1e6:.1f} M"
    yield "model", f"{planned.config.model.name}, {size} parameters"
    lengths = planned.given.lengths
    yield "prompts", f"{len(lengths):,} ({labels} independent groups), {sum(lengths):,} tokens"
    yield "skipped as done", ", ".join(done) or "nothing"
    yield "to run", ", ".join(state.name for state in states if state.state != "done")
    costly = [step for step in plan.steps if step.passes or step.completions]
    for where, machine in planned.machines.items():
        name = machine.name if where == "here" else f"{machine.name}, by its data sheet"
        yield f"time {where}", f"{plan.time(machine)} of the model's passes ({name})" if costly else f"seconds ({name})"
        if where == "here" and not answered and (fewer := planned.time_with_fewer_kinds(done)):
            yield "otherwise", f"{fewer}, which its answers will show"
    if (budget := planned.config.budget) is not None and not budget.answered:
        yield "budget", f"{budget.minutes:g} minutes: the questions are cut to what the answers leave of it"
    if costly:
        yield "most of it", plan.slowest(planned.machine)
    yield "memory", plan.memory(planned.machine)
    if with_workers:
        yield "each worker", plan.worker(planned.machine)
    stored = plan.stored(planned.machine)
    yield "disk", f"{gigabytes(stored)} of activations, in {directory}" if stored else f"little, in {directory}"
    command = shlex.join([*shlex.split(program()), *(word for word in sys.argv[1:] if word != "--dry-run")])
    yield "next", f"{command}    (--verbose: every step)"
    if planned.warning:
        yield "warning", planned.warning


def _of_process(directory: Path, config: RunConfig) -> Path:
    """Return the run directory of this process: with layers split over processes, each writes its own files."""
    rank = os.environ.get("RANK", "0")
    split = config.model.loading.tp_plan is not None and rank != "0"
    return directory.with_name(f"{directory.name}.rank{rank}") if split else directory


def run_name(config: RunConfig, overrides: Sequence[str]) -> str:
    """Return the name of the run directory; an override of the model or the prompts is a part of it."""
    keys = {override.partition("=")[0] for override in overrides}
    parts = [config.name]
    parts += [config.model.name.rstrip("/").rsplit("/", 1)[-1]] if "model.name" in keys else []
    parts += [config.prompts.path.stem] if "prompts.path" in keys and config.prompts.path else []
    parts += [Path(given.name).stem for given in config.prompts.datasets] if "prompts.datasets" in keys else []
    parts += [*config.prompts.contrast] if "prompts.contrast" in keys and config.prompts.contrast else []
    return "-".join(parts)


def show(record: dict[str, Any], as_json: bool) -> None:
    """Print a record as JSON, or one line per key, and one for each entry of what is nested."""
    lines = list[str]()
    for key, value in record.items():
        if isinstance(value, dict):
            lines += [key, *(wrapped(f"  {name:<44} {part}", 47) for name, part in value.items())]
        else:
            lines.append(wrapped(f"{key:<28} {value}", 29))
    print_result(record, lines, as_json=as_json)
