"""What a newcomer sees first: a line before anything heavy is imported, and no line of another library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from extract.shipped import ROOT
from tests.support.covering import matrix
from tests.support.families import tiny
from tests.support.tiny_gguf import tiny_llama, write_gguf

UNTIL_FIRST_LINE = """
import os, sys
from refusal.cli.main import main

class First:
    def write(self, text):
        if text.strip():
            heavy = [name for name in ("torch", "transformers", "sklearn") if name in sys.modules]
            print(heavy, text.strip())
            sys.stdout.flush()
            os._exit(0)
    def flush(self): pass
    def isatty(self): return False

sys.stderr = First()
sys.argv = ["refusal", *sys.argv[1:]]
main()
"""


def environment(cache: Path) -> dict[str, str]:
    given = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "REFUSAL_CACHE": str(cache)}
    return {name: value for name, value in os.environ.items() if name != "TRANSFORMERS_VERBOSITY"} | given


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", tiny_llama())


@matrix("kind, more", ["hub id", "directory", "GGUF file", "organism", "configuration"],
        [(), ("--dry-run",), ("--budget", "2h")])  # fmt: skip
def test_the_first_line_comes_before_heavy_imports(
    kind: str, more: tuple[str, ...], tmp_path: Path, gguf: Path
) -> None:
    target = {
        "hub id": "nobody/no-such-model",
        "directory": str(tiny("qwen2.5-1.5b-instruct", tmp_path / "tiny-qwen")),
        "GGUF file": str(gguf),
        "organism": "organisms/zoo/two-knobs",
        "configuration": "configs/quickstart.yaml",
    }[kind]
    done = subprocess.run(
        [sys.executable, "-c", UNTIL_FIRST_LINE, "run", target, *more, "--out", str(tmp_path / "run")],
        capture_output=True, text=True, cwd=ROOT, check=True, env=environment(tmp_path / "cache"), timeout=120,
    )  # fmt: skip
    expected = "loading the libraries" if kind == "configuration" else target  # whose mistakes are one line
    assert done.stdout.startswith(f"[] Note: {expected}"), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "GGUF file"])
def test_a_dry_run_prints_nothing_of_other_libraries(kind: str, tmp_path: Path, gguf: Path) -> None:
    target = str(gguf if kind == "GGUF file" else tiny("qwen2.5-1.5b-instruct", tmp_path / "tiny-qwen"))
    command = [sys.executable, "-m", "refusal", "run", target, "--dry-run", "--out", str(tmp_path / "run")]
    command += ["--set", "prompts.limit=4", "--set", "prompts.limit_dual_use=0"]
    told = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=300,
                              env=environment(tmp_path / "cache"))  # fmt: skip
        assert done.stdout.startswith(f"model           {target}"), done.stdout
        told.append([line.split(":")[1].split()[0] if line.startswith("Note:") else line.split()[0]
                     for line in done.stderr.splitlines()])  # fmt: skip
    made = ["dequantising", "dequantising"] if kind == "GGUF file" else []  # what is done, and its bar
    assert told == [[target, "loading", *made, "measuring"], [target, "loading"]]
