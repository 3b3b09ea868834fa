"""The command that runs this program again: `refusal` where PATH finds it, else its path, else `python -m refusal`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any


def program() -> str:
    """Return the command, quoted for a shell; a path under the working directory is relative."""
    script = _script()
    if script is None:
        return f"{_quoted(Path(sys.executable))} -m refusal"
    found = shutil.which("refusal")
    if found is not None and Path(found).resolve() == script.resolve():
        return "refusal"
    return _quoted(script)


def _script() -> Path | None:
    """Return the console script that runs, or the one in the directory of this Python."""
    running = Path(sys.argv[0])
    if running.stem == "refusal" and running.is_file():
        return running
    installed = shutil.which("refusal", path=str(Path(sys.executable).parent))
    return None if installed is None else Path(installed)


def short_path(path: Path) -> Path:
    """Return a path relative to the working directory if it is under it, else the absolute path."""
    path, here = path.absolute(), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def name_program(command: Any, name: str) -> None:
    """Put a program's name for `refusal` at the head of the commands in the help of a Click command and its parts."""
    command.help = command.help and command.help.replace(": refusal ", f": {name} ")
    for part in getattr(command, "commands", {}).values():
        name_program(part, name)


def _quoted(path: Path) -> str:
    short = short_path(path)
    return shlex.quote(str(short) if len(short.parts) > 1 else f"./{short}")
