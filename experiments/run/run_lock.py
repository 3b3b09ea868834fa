"""The lock on a run directory: one process writes a run at a time, and others are told which."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from experiments.run.command_line import command_line
from extract.errors import UserError
from extract.store.file_lock import FileLock

NAME = "run.lock"
PATIENCE = 0.5  # seconds; `refusal status` holds the lock for an instant


@dataclass(frozen=True)
class RunHolder:
    """The process that holds the lock of a run directory, as its lock file names it."""

    process: int
    host: str
    since: str  # ISO 8601, UTC
    command: str
    step: str = ""  # "3/13 respond": the stage that it runs
    step_since: str = ""

    @property
    def described(self) -> str:
        """Process, host, time and command in one line."""
        return f"process {self.process} on {self.host} since {self.since}: {self.command}"


class RunLock:
    """Held while a run writes into its directory.

    The operating system releases it when the process ends, however it ends; its file then names a process that was
    killed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, FileLock(directory / NAME)
        self._holder = RunHolder(os.getpid(), socket.gethostname(), now(), command_line())

    def __enter__(self) -> RunLock:
        """Take the lock.

        Raises:
            UserError: another process holds it, and which; or the directory cannot be written.
        """
        until = time.monotonic() + PATIENCE
        while not self._lock.acquire():
            if time.monotonic() > until:
                raise _in_use(self._directory)
            time.sleep(0.05)
        self._lock.write(json.dumps(asdict(self._holder)))
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def at(self, step: str) -> None:
        """Name the stage that runs now."""
        self._holder = replace(self._holder, step=step, step_since=now())
        self._lock.write(json.dumps(asdict(self._holder)))


def refuse_if_held(directory: Path) -> None:
    """Raise UserError if another process writes into a run directory, and say which."""
    if is_held(directory):
        raise _in_use(directory)


def _in_use(directory: Path) -> UserError:
    holder, remedy = lock_holder(directory), "wait until it ends, or choose another directory with --out"
    return UserError(f"{directory} is in use by {holder.described if holder else 'another process'}; {remedy}")


def is_held(directory: Path) -> bool:
    """Return whether a process writes into a run directory now."""
    return FileLock(directory / NAME).held


def lock_holder(directory: Path) -> RunHolder | None:
    """Return the process that its lock file names; where the lock is not held, that process was killed."""
    try:
        return RunHolder(**json.loads((directory / NAME).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):  # no file, or it is being written
        return None


def now() -> str:
    """Return the time, as the manifest writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
