"""The log of a run, `log.txt`: command lines, versions, stages with durations, notes, warnings and errors."""

from __future__ import annotations

import importlib.metadata
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.run.command_line import command_line
from experiments.run.run_lock import now

NAME = "log.txt"
PACKAGES = ("refusal-probes", "torch", "transformers", "numpy", "scikit-learn", "h5py")


class RunLog:
    """Appends lines to the log of a run; a full disk loses lines and stops nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def write(self, line: str) -> None:
        """Append one line with the time before it."""
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
