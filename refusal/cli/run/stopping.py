"""Ctrl-C during a run: one line that says how to go on, and exit code 130."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from refusal.cli.program import program

STOPPED = 130  # 128 + SIGINT, as shells count


@contextmanager
def resumable() -> Iterator[None]:
    """End the process on Ctrl-C with one line instead of a traceback; what is done stays done.

    The process ends without Python's clean-up, which aborts where torch was being imported; files are whole without it.
    """
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C changes nothing
        command = f"{program()} {shlex.join(sys.argv[1:])}"
        typer.echo(f"Stopped; the same command goes on where it stopped: {command}", err=True)
        sys.stdout.flush()
        os._exit(STOPPED)
