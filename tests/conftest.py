"""Shared fixtures: the shipped organism, and one whole quickstart run through the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent
ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def refusal(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    command = [sys.executable, "-m", "experiments.cli", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the quickstart configuration, exactly as `make demo` makes it."""
    directory = tmp_path_factory.mktemp("runs") / "quickstart"
    done = refusal("run", "configs/quickstart.yaml", "--out", str(directory))
    assert done.returncode == 0, done.stderr[-3000:]
    (directory / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return directory
