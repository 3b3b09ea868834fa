"""What every benchmark prints and writes: its figures, and where they were measured."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path

import torch


def main(name: str, measure: Callable[[bool], dict[str, float]]) -> None:
    """Run one benchmark from the command line."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="a small version that only shows that it runs")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    figures = measure(arguments.quick)
    for key, value in figures.items():
        print(f"{key:<32} {value:.4g}")
    if arguments.json:
        record = {"figures": figures, "environment": environment(arguments.quick)}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def environment(quick: bool) -> dict[str, object]:
    """Describe the machine and the versions."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "quick": quick,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "gpu": gpu,
    }
