"""Runs the cells that are left, here or as Ray tasks; one that fails is recorded, and the others are run."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments.cluster.connection import (
    Cluster,
    ClusterLostError,
    Resources,
    WorkersWanted,
    connected,
    resources_of_nodes,
    share,
)
from experiments.run.run_log import NAME as LOG
from experiments.sweep.cells import FAILURE, CellState, Failure, state_of
from experiments.sweep.process import POLL_S, CellCommand, CellProcess, Ended, run_cell
from extract.atomic_write import make_folder
from extract.errors import in_one_line
from extract.progress import Reporter

LOST_WORKERS = 3  # of one cell, whose task is started again each time
RAY_POLL_S = 1.0
Finish = Callable[[CellState], None]
Start = Callable[[Sequence[CellCommand]], Iterator[Ended]]  # yields how each ended, as they end


@dataclass(frozen=True)
class Places:
    """Where cells run: so many processes here at a time, or Ray tasks."""

    workers: int = 1
    ray: WorkersWanted | None = None

    @property
    def threads(self) -> int | None:
        """The threads of each process, where several run here; None: as torch chooses, or Ray."""
        return None if self.ray or self.workers == 1 else max(1, (os.cpu_count() or 1) // self.workers)

    @contextmanager
    def opened(self, reporter: Reporter) -> Iterator[Start]:
        """Yield what runs cells; connects to Ray where that is asked.

        Raises:
            UserError: no cluster answers, or it has less than asked.
        """
        if self.ray is None:
            yield partial(_here, workers=self.workers)
            return
        with connected(self.ray.address) as cluster:
            resources = share(resources_of_nodes(cluster.ray), self.ray)
            reporter.say(f"Ray: {resources.described}")
            yield partial(_on_ray, cluster=cluster, resources=resources, say=reporter.say)


def run_cells(
    states: Sequence[CellState],
    start: Start,
    reporter: Reporter,
    finish: Finish,
    *,
    threads: int | None = None,
    budget: str | None = None,
    cut_to: float | None = None,
) -> None:
    """Run every cell that is not done.

    Args:
        states: of all cells.
        finish: called with the state of each cell that has ended, done or failed.
        threads: of each cell's process.
        budget: of each cell, as --budget.
        cut_to: the minutes of that budget.
    """
    left = {state.cell.name: state for state in states if state.state != "done"}
    for state in left.values():
        make_folder(state.directory)
        (state.directory / FAILURE).unlink(missing_ok=True)
    commands = [
        CellCommand(name, state.cell.arguments(budget), str(state.directory.absolute()), os.getcwd(), threads)
        for name, state in left.items()
    ]
    with reporter.stage("sweep") as step, step.task("cells", len(states)) as advance:
        advance(len(states) - len(left), remembered=True)
        for ended in start(commands):
            given = left[ended.name]
            if ended.exit_code:
                failure = Failure(exit_code=ended.exit_code, line=ended.line, node=ended.node)
                failure.write(given.directory / FAILURE)
                step.say(f"{ended.name} failed: {ended.line}; log: {given.directory / LOG}; the others are run")
            found = state_of(given.cell, given.directory, cut_to)
            finish(found if ended.exit_code else replace(found, state="done"))
            advance(1)


def _here(commands: Sequence[CellCommand], workers: int) -> Iterator[Ended]:
    """Run cells as processes of this one, so many at a time."""
    waiting, running = deque(commands), list[CellProcess]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(CellProcess(waiting.popleft()))
            time.sleep(POLL_S)
            for process in list(running):
                if (found := process.ended()) is not None:
                    running.remove(process)
                    yield found
    finally:
        for process in running:
            process.stop()


def _on_ray(
    commands: Sequence[CellCommand], cluster: Cluster, resources: Resources, say: Callable[[str], None]
) -> Iterator[Ended]:
    """Run cells as Ray tasks; one whose worker, node or cluster is lost is started again, where it resumes."""
    left = {command.name: command for command in commands}
    try:
        for ended in _as_tasks(commands, cluster, resources):
            del left[ended.name]
            yield ended
    except ClusterLostError as lost:
        cluster.start_again(lost, say)
        yield from _on_ray(list(left.values()), cluster, resources, say)


def _as_tasks(commands: Sequence[CellCommand], cluster: Cluster, resources: Resources) -> Iterator[Ended]:
    ray = cluster.ray
    task = ray.remote(run_cell).options(
        num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=LOST_WORKERS, name="cell"
    )
    waiting, running = deque(commands), dict[Any, CellCommand]()
    try:
        while waiting or running:
            while waiting and len(running) < resources.workers:
                command = waiting.popleft()
                running[task.remote(command)] = command
            ready, _ = ray.wait(list(running), num_returns=1, timeout=RAY_POLL_S)
            for reference in ready:
                yield _result(cluster, reference, running.pop(reference))
            if not ready:
                cluster.check()
    except ClusterLostError:
        running.clear()
        raise
    finally:
        for reference in running:
            ray.cancel(reference)


def _result(cluster: Cluster, reference: Any, command: CellCommand) -> Ended:
    try:
        found = cluster.ray.get(reference)
    except cluster.ray.exceptions.RayError as error:  # lost with its worker, more often than it is started again
        cluster.check()
        return Ended(command.name, 1, f"{type(error).__name__}: {in_one_line(error)}", "")
    assert isinstance(found, Ended)
    return found
