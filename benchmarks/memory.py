"""Peak memory of a piece of work, read from Linux (getrusage's peak is inherited from the parent process)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def peak_beyond_mb(work: Callable[[], object]) -> float:
    """Do the work; return by how many megabytes its peak exceeds what the process held before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before = _memory_of_this_process("VmRSS")
    work()
    return max(_memory_of_this_process("VmHWM") - before, 0.1)


def _memory_of_this_process(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) / 1024
