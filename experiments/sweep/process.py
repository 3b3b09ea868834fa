"""One cell as a process: `python -m refusal run …`, which ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.run.run_lock import is_held
from experiments.run.run_log import NAME as LOG
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
    threads: int | None = None  # of the process; None: as the environment says


@dataclass(frozen=True)
class Ended:
    """How a cell's process ended."""

    name: str
    exit_code: int  # negative: the number of a signal
    line: str  # what went wrong; empty where nothing did
    node: str


class CellProcess:
    """A cell that runs."""

    def __init__(self, command: CellCommand) -> None:
        """Start it; what it prints on standard error goes into the log of the cell's run."""
        self._command, self._log = command, Path(command.directory) / LOG
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.getenv("PYTHONPATH")]))}
        if command.threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(command.threads))
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

    def ended(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return Ended(self._command.name, code, self._line(code) if code else "", socket.gethostname())

    def stop(self) -> None:
        """End it as Ctrl-C does, and then by force; its finished stages are kept."""
        if self._process.poll() is not None:
            return
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
        found, lines = ENDED.findall(text), [line.strip() for line in text.splitlines() if line.strip()]
        said = (found or lines or [f"exit code {code}"])[-1].removeprefix("refusal: ")
        if code < 0:
            memory = " (is there too little memory?)" if -code == signal.SIGKILL else ""
            said = (
                f"killed by {signal.Signals(-code).name}{memory}; last line: {said}"
                if lines
                else (f"killed by {signal.Signals(-code).name}{memory}")
            )
        return said if len(said) <= MOST_CHARS else said[: MOST_CHARS - 1] + "…"


def run_cell(command: CellCommand) -> Ended:
    """Run a cell to its end: a Ray task. Its process may still be ending on another node, where that one was lost."""
    directory = Path(command.directory)
    if not directory.is_dir():
        return Ended(
            command.name,
            2,
            f"{socket.gethostname()}: there is no {directory}; put the sweep's directory "
            "(--out) on a file system that all nodes share",
            socket.gethostname(),
        )
    until = time.monotonic() + PATIENCE_S
    while is_held(directory) and time.monotonic() < until:
        time.sleep(POLL_S)
    process = CellProcess(command)
    try:
        while (found := process.ended()) is None:
            time.sleep(POLL_S)
        return found
    finally:
        process.stop()


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
