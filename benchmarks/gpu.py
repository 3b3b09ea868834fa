"""All that needs a GPU, in one command of at most nine minutes: `make gpu`.

First correctness in bfloat16 and float32 on the GPU (tests/extract/model/test_real_weights.py), then the GPU rows of
RESULTS.md: extraction and steering at a Llama-3.1-8B shape. It prints rows with device and date.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from extract.shipped import ROOT

TESTS = ("tests/extract/model/test_real_weights.py",)
BENCHMARKS = ("extraction", "steering")
SECONDS = 9 * 60  # of all together; what does not end within them is told


def measure(quick: bool) -> bool:
    """Run the checks and then each benchmark; print their figures; return whether all of them succeeded."""
    ends = time.monotonic() + SECONDS
    checked = _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS], ends)
    print(f"correctness: {'passed' if checked else 'FAILED'}", flush=True)
    done = [checked]
    for name in BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "figures.json"
            command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(found)]
            done.append(_run(command + ["--quick"] * quick, ends))
            print(_row(name, json.loads(found.read_text())["figures"]) if done[-1] else f"{name}: FAILED", flush=True)
    return all(done)


def _run(command: list[str], ends: float) -> bool:
    try:
        return subprocess.run(command, cwd=ROOT, timeout=max(1.0, ends - time.monotonic())).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command[1:])}: more than {SECONDS / 60:g} minutes in all", flush=True)
        return False


def _row(name: str, figures: dict[str, float]) -> str:
    """Return a row of RESULTS.md: the benchmark, the device, versions, the date, the figures."""
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {datetime.now(UTC).date()}"
    shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
    return f"| `python -m benchmarks.{name}` | {where} | {shown} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--quick", action="store_true", help="a small version that only checks that it runs")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("make gpu needs a GPU, and torch finds none", file=sys.stderr)
        sys.exit(2)
    sys.exit(not measure(arguments.quick))
