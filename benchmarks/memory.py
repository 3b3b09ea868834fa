"""Peak memory of a piece of work, from Linux's /proc (getrusage inherits the peak of the parent)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def peak_beyond_mb(work: Callable[[], object]) -> float:
    """Run `work` and return by how many MB its peak memory exceeds the memory before it."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory_of_this_process("VmRSS")
    work()
    return max(_memory_of_this_process("VmHWM") - before, 0.1)


def _memory_of_this_process(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) / 1024
