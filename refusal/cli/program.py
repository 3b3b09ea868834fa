"""The program: the command that runs it again, its errors and warnings in one line, and its end on Ctrl-C."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

STOPPED = 130  # 128 + SIGINT, as shells count
AGAIN = 0.05  # seconds until a dropped Ctrl-C is sent again


def program() -> str:
    """Return the command for a shell: `refusal` where PATH finds it, else its path, else `python -m refusal`."""
    script = sys.argv[0]
    if Path(script).stem != "refusal" or not Path(script).is_file():  # then the one in the directory of this Python
        script = shutil.which("refusal", path=str(Path(sys.executable).parent)) or ""
    if not script:
        return f"{_quoted(Path(sys.executable))} -m refusal"
    executable = shutil.which("refusal")
    same = executable is not None and Path(executable).resolve() == Path(script).resolve()
    return "refusal" if same else _quoted(Path(script))


def short_path(path: Path) -> Path:
    """Return a path relative to the working directory if it is under it, else the absolute path."""
    path, here = path.absolute(), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def name_program(command: Any, name: str) -> None:
    """Put a program's name for `refusal` at the head of the commands in the help of a Click command and its parts."""
    command.help = command.help and command.help.replace(": refusal ", f": {name} ")
    for part in getattr(command, "commands", {}).values():
        name_program(part, name)


PLAIN = {  # Typer's words for a wrong value
    r"Input should be greater than or equal to": "expected a number of at least",
    r"Input should be less than or equal to": "expected a number of at most",
    r"Input should be a valid integer.*": "expected a whole number",
    r"Input should be a valid number.*": "expected a number",
}


def usage_line(error: Exception, name: str) -> str | None:
    """Return Click's error about arguments in one line, the help of a command without any; None for another error."""
    if not hasattr(error, "format_message"):  # Typer carries a private copy of Click
        return None
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    for theirs, ours in PLAIN.items():
        message = re.sub(theirs, ours, message)
    message = message[:1].lower() + message[1:].rstrip(".")
    return f"refusal: {message}; see: {context.command_path if context else name} --help"


def warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as one line; of what is meant for users without the place in the code."""
    return f"{'refusal' if category is UserWarning else f'{filename}:{lineno}: {category.__name__}'}: {message}\n"


def _quoted(path: Path) -> str:
    short = short_path(path)
    return shlex.quote(str(short) if len(short.parts) > 1 else f"./{short}")


@contextmanager
def resumable() -> Iterator[None]:
    """End the process on Ctrl-C with one line instead of a traceback; what is done stays done."""
    sys.unraisablehook = _not_lost
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C changes nothing
        command = f"{program()} {shlex.join(sys.argv[1:])}"
        typer.echo(f"Stopped; the same command goes on where it stopped: {command}", err=True)
        sys.stdout.flush()
        os._exit(STOPPED)  # Python's clean-up aborts where torch was being imported; files are whole without it
    finally:
        sys.unraisablehook = sys.__unraisablehook__


def _not_lost(unraisable: sys.UnraisableHookArgs) -> None:
    """Send Ctrl-C again where Python dropped it, as it does in finalizers and callbacks of weak references."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        again = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)
