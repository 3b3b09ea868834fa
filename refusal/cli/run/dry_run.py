"""`--dry-run` in eleven lines: what is left to do, and the time, memory and disk that it takes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refusal.cli.program import program

if TYPE_CHECKING:
    from experiments.pipeline.plan import Estimate
    from experiments.pipeline.stage_states import StageState


def short_plan(
    found: Estimate, directory: Path, states: Sequence[StageState], *, with_workers: bool = False
) -> list[str]:
    """Return the plan of what is left, one line for each question.

    Args:
        states: of the stages that the run reads, in order.
        with_workers: also what each Ray worker takes.
    """
    return [f"{question:<15} {answer}" for question, answer in _answers(found, directory, states, with_workers)]


def _answers(
    found: Estimate, directory: Path, states: Sequence[StageState], with_workers: bool
) -> Iterator[tuple[str, str]]:
    from experiments.pipeline.footprint import gigabytes

    done = [state.name for state in states if state.state == "done"]
    plan = found.plan(done)
    labels = ", ".join(f"{n:,} {label} of {groups:,}" for label, (n, groups) in found.by_label.items())
    yield "model", f"{found.config.model.name}, {_count(found.model.parameters)} parameters"
    yield "prompts", f"{len(found.prompts):,} ({labels} independent groups), {sum(found.given.lengths):,} tokens"
    yield "skipped as done", ", ".join(done) or "nothing"
    yield "to run", ", ".join(state.name for state in states if state.state != "done")
    costly = [step for step in plan.steps if step.passes or step.completions]
    for where, machine in found.machines.items():
        name = machine.name if where == "here" else f"{machine.name}, by its data sheet"
        yield f"time {where}", f"{plan.time(machine)} of the model's passes ({name})" if costly else f"seconds ({name})"
        if where == "here" and (fewer := found.time_with_fewer_kinds(done)):
            yield "or less", f"{fewer}, which its answers will show"
    if costly:
        yield "most of it", plan.slowest(found.machine)
    yield "memory", plan.memory(found.machine)
    if with_workers:
        yield "each worker", plan.worker(found.machine)
    stored = plan.stored(found.machine)
    yield "disk", f"{gigabytes(stored)} of activations, in {directory}" if stored else f"little, in {directory}"
    yield "next", f"{_without_dry_run()}    (--verbose: every step)"
    if found.warning:
        yield "warning", found.warning


def _without_dry_run() -> str:
    return shlex.join([*shlex.split(program()), *(word for word in sys.argv[1:] if word != "--dry-run")])


def _count(n: int) -> str:
    return f"{n / 1e9:.1f} B" if n >= 1e9 else f"{n / 1e6:.1f} M"
