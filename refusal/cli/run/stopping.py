"""Ctrl-C during a run: one line that says how to go on, and exit code 130."""

from __future__ import annotations

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
    """End the process on Ctrl-C with one line instead of a traceback; what is done stays done."""
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would interrupt the clean-up with a traceback
        command = f"{program()} {shlex.join(sys.argv[1:])}"
        typer.echo(f"\nStopped; the same command goes on where it stopped: {command}", err=True)
        raise SystemExit(STOPPED) from None
