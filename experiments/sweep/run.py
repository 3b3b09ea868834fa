"""Runs the cells that are left, as processes here or of Ray workers; a failed one is recorded, others are run.

A cell is `python -m refusal run …`, which ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from experiments.cluster.connection import Cluster, Resources, WorkersWanted, connected, resources_of_nodes, share
from experiments.cluster.workers import ProcessFacts, Workers
from experiments.run.run_lock import LOG, is_held
from experiments.sweep.grid import FAILURE, CellState, Ending, state_of
from extract.atomic_write import make_folder
from extract.errors import in_one_line
from extract.progress import Reporter
from extract.shipped import ROOT

POLL_S = 0.1
PATIENCE_S = 30.0  # in which a stopped process must end, and a process of a node that is lost must be gone
DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
MOST_CHARS = 300  # of a line
ENDED = re.compile(r"^\S+ Ended with (?:UserError: )?(.+)$", re.MULTILINE)  # as the log of a run says it


@dataclass(frozen=True)
class CellCommand:
    """What a process is started with, here or on another node."""

    name: str
    arguments: tuple[str, ...]  # of `refusal`
    directory: str  # of the cell; absolute
    cwd: str  # which relative paths are under


Finish = Callable[[CellState], None]
Start = Callable[[Sequence[CellCommand]], Iterator[Ending]]  # yields how each ended, as they end


class CellProcess:
    """A cell that runs, with so many threads; what it prints on standard error goes into the log of its run."""

    def __init__(self, command: CellCommand, threads: int | None = None) -> None:
        self._command, self._log = command, Path(command.directory) / LOG
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.getenv("PYTHONPATH")]))}
        if threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        words = [sys.executable, "-P", "-m", "refusal", *command.arguments, "--out", command.directory, "--quiet"]
        with self._log.open("ab") as log:
            self._begin = log.tell()
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                cwd=command.cwd if Path(command.cwd).is_dir() else None,
                preexec_fn=_ends_with_parent(),
            )

    def ended(self) -> Ending | None:
        code = self._process.poll()
        if code is None:
            return None
        line = self._line(code) if code else ""
        return Ending(cell=self._command.name, exit_code=code, line=line, node=socket.gethostname())

    def stop(self) -> None:
        """End it as Ctrl-C does, and then by force; its finished stages are kept."""
        if self._process.poll() is not None:
            return
        if sys.platform == "win32":
            self._process.terminate()
        else:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line(self, code: int) -> str:
        """Return what the log says about the end, in one line."""
        with self._log.open("rb") as log:
            log.seek(self._begin)
            text = log.read().decode("utf-8", "replace")
        endings, lines = ENDED.findall(text), [line.strip() for line in text.splitlines() if line.strip()]
        said = (endings or lines or [f"exit code {code}"])[-1].removeprefix("refusal: ")
        if code < 0:
            name = signal.Signals(-code).name
            memory = " (is there too little memory?)" if name == "SIGKILL" else ""
            said = f"killed by {name}{memory}" + (f"; last line: {said}" if lines else "")
        return said if len(said) <= MOST_CHARS else said[: MOST_CHARS - 1] + "…"


def _ends_with_parent() -> Callable[[], None] | None:
    """Return what makes a child end when its parent is killed; None where the system is not Linux."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()  # found before the fork: after it little may be run

    def end_with_parent() -> None:
        prctl(DEATH_OF_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed meanwhile
            os._exit(1)

    return end_with_parent


class CellWorker:
    """Runs one cell at a time on its node; Ray makes it an actor."""

    def __init__(self) -> None:
        self._process: CellProcess | None = None

    def facts(self) -> ProcessFacts:
        return ProcessFacts(socket.gethostname(), os.getpid(), {})

    def run(self, command: CellCommand) -> Ending:
        """Run a cell to its end. Its process may still be ending on another node, where that one was lost."""
        directory, node = Path(command.directory), socket.gethostname()
        if not directory.is_dir():
            line = f"{node}: there is no {directory}; put the sweep's directory (--out) on a file system that all"
            return Ending(cell=command.name, exit_code=2, line=f"{line} nodes share", node=node)
        until = time.monotonic() + PATIENCE_S
        while is_held(directory) and time.monotonic() < until:
            time.sleep(POLL_S)
        try:
            self._process = CellProcess(command)
            while (ending := self._process.ended()) is None:
                time.sleep(POLL_S)
        except Exception as error:  # as of its log, on a disk that is full; other cells run on
            return Ending(cell=command.name, exit_code=1, line=in_one_line(error), node=node)
        return ending

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


@dataclass(frozen=True)
class Places:
    """Where cells run: so many processes here at a time, or Ray workers."""

    workers: int = 1
    ray: WorkersWanted | None = None

    @contextmanager
    def opened(self, reporter: Reporter) -> Iterator[Start]:
        """Yield what runs cells; raises UserError if no cluster answers, or it has less than asked."""
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
    budget: str | None = None,
    cut_to: float | None = None,
) -> None:
    """Run every cell that is not done, cut to a budget of some minutes; finish is called as each ends."""
    left = {state.cell.name: state for state in states if state.state != "done"}
    for state in left.values():
        make_folder(state.directory)
        (state.directory / FAILURE).unlink(missing_ok=True)
    commands = [
        CellCommand(name, state.cell.arguments(budget), str(state.directory.absolute()), os.getcwd())
        for name, state in left.items()
    ]
    with reporter.stage("sweep") as step, step.task("cells", len(states)) as advance:
        advance(len(states) - len(left), remembered=True)
        for ended in start(commands):
            given = left[ended.cell]
            if ended.exit_code:
                ended.write(given.directory / FAILURE)
                step.say(f"{ended.cell} failed: {ended.line}; log: {given.directory / LOG}; the others are run")
            state = state_of(given.cell, given.directory, cut_to)
            finish(state if ended.exit_code else replace(state, state="done"))
            advance(1)


def _here(commands: Sequence[CellCommand], workers: int) -> Iterator[Ending]:
    """Run cells as processes of this one, so many at a time; several share the processors."""
    waiting, running = deque(commands), list[CellProcess]()
    threads = None if workers == 1 else max(1, (os.cpu_count() or 1) // workers)
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(CellProcess(waiting.popleft(), threads))
            time.sleep(POLL_S)
            for process in list(running):
                if (ending := process.ended()) is not None:
                    running.remove(process)
                    yield ending
    finally:
        for process in running:
            process.stop()


def _on_ray(
    commands: Sequence[CellCommand], cluster: Cluster, resources: Resources, say: Callable[[str], None]
) -> Iterator[Ending]:
    """Run cells on Ray workers; one whose worker, node or cluster is lost is started again, where it resumes."""
    resources = replace(resources, workers=min(resources.workers, len(commands)))
    workers = Workers(cluster, resources, CellWorker, (), say, stalled_s=inf, ahead=1)

    def failed(part: tuple[CellCommand], why: str) -> Ending:
        return Ending(cell=part[0].name, exit_code=1, line=why, node="")

    try:
        for _, ended in workers.run("run", [(command,) for command in commands], give_up=failed):
            yield ended
    finally:
        workers.each("stop")
        workers.stop()
