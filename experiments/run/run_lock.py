"""The lock and the log of a run directory: which process writes it, and what happened there, without secrets."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from extract.errors import UserError
from extract.store.file_lock import FileLock

NAME = "run.lock"
LOG = "log.txt"
PACKAGES = ("refusal-probes", "torch", "transformers", "numpy", "scikit-learn", "h5py")
PATIENCE = 0.5  # seconds; `refusal status` holds the lock for an instant
HIDDEN = "***"
NAMES = r"[A-Za-z_.-]*(?:token|password|passwd|secret|api[_-]?key|credential)s?"
SECRETS = (
    (re.compile(rf"(?i)^((?:--)?{NAMES}=).+"), rf"\1{HIDDEN}"),  # --set judge.api_key=VALUE, --token=VALUE
    (re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_)[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{HIDDEN}@"),  # https://user:password@host
)
SECRET_OPTION = re.compile(rf"(?i)^--{NAMES}$")
COUNTS = re.compile(r"(?i)^(?:--)?[a-z_.-]*(?:max|min|new|response|thought|kl|budget)[a-z_.-]*tokens?\b")  # of a text


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
        return f"process {self.process} on {self.host} since {self.since}: {self.command}"


class RunLock:
    """Held while a run writes into its directory; the operating system releases it however the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, FileLock(directory / NAME)
        self._holder = RunHolder(os.getpid(), socket.gethostname(), now(), command_line())

    def __enter__(self) -> RunLock:
        """Take the lock; UserError: another process holds it, and which, or the directory cannot be written."""
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


class RunLog:
    """Appends lines to the log of a run; a full disk loses lines and stops nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOG

    def write(self, line: str) -> None:
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(f"{now()} {' '.join(line.split())}\n")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the command line, the versions, and during the block the warnings and how it ends."""
        self.write(f"Command: {command_line()}")
        self.write("Versions: " + ", ".join([f"Python {platform.python_version()}", *map(_version, PACKAGES)]))
        shown = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None) -> None:  # type: ignore[no-untyped-def]
            self.write(f"Warning: {category.__name__}: {message} ({Path(filename).name}:{lineno})")
            shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            yield
            self.write("Finished")
        except KeyboardInterrupt:
            self.write("Stopped by the user")
            raise
        except Exception as error:
            self.write(f"Ended with {type(error).__name__}: {error}")
            raise
        finally:
            warnings.showwarning = shown


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"


def command_line(arguments: Sequence[str] | None = None) -> str:
    """Return a command line (of this process), quoted for a shell, with secrets replaced by `***`."""
    given = list(sys.argv if arguments is None else arguments)
    program = Path(given[0]) if given else Path()
    words = [program.parent.name if program.name == "__main__.py" else program.name, *given[1:]]  # python -m refusal
    return shlex.join(map(_hidden, words, ["", *words]))


def _hidden(word: str, before: str) -> str:
    if SECRET_OPTION.match(before) and not COUNTS.match(before):
        return HIDDEN
    for pattern, shown in SECRETS if not COUNTS.match(word) else SECRETS[1:]:
        word = pattern.sub(shown, word)
    return word
