"""Benchmarks run and write what they promise; their numbers are for reading, not for passing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config import ROOT

KEYS = {"steering": {"overhead_batch1", "overhead_batch8"}}


@pytest.mark.parametrize("name", KEYS)
def test_quick_run(name: str, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", str(out)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads(out.read_text())
    assert set(record["figures"]) == KEYS[name]
    assert all(value > 0 for value in record["figures"].values())
    assert all(key in done.stdout for key in KEYS[name])
    assert record["environment"]["quick"] is True


def test_every_benchmark_is_tested() -> None:
    shown = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"__init__", "table"}
    assert shown == set(KEYS)
