"""Functions in a child process, and peak memory from Linux's /proc (getrusage inherits the peak of the parent)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from extract.shipped import ROOT


def peak_beyond_mb(work: Callable[[], object]) -> float:
    """Run `work` and return by how many MB its peak memory exceeds the memory before it."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory_of_this_process("VmRSS")
    work()
    return max(_memory_of_this_process("VmHWM") - before, 0.1)


def _memory_of_this_process(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) / 1024


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def in_process(part: Literal["memory", "one_thread"], size: str) -> Any:
    """Run one part of `process.probe_grid` and return its figures; `one_thread` has one thread in every library."""
    environment = os.environ | (dict.fromkeys(THREADS, "1") if part == "one_thread" else {})
    command = [sys.executable, "-m", "benchmarks.process.probe_grid", part, size]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])
