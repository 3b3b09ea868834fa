"""A whole run on Ray workers: its results are those of one process, number for number."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from extract.shipped import ROOT
from tests.support.make_small_run import some_prompts

pytestmark = pytest.mark.slow
SMALL = ROOT / "tests" / "fixtures" / "small_run" / "config.yaml"
FEW = "generate.batch_size=64 extract.layers=[3,4] triggers.patched=8 triggers.erased=8 triggers.attributed=8".split()


def run(out: Path, *more: str) -> str:
    prompts = out.with_name("prompts.jsonl")
    prompts.write_text("\n".join(some_prompts(4)))
    few = [word for each in (f"prompts.path={prompts}", *FEW) for word in ("--set", each)]
    done = subprocess.run(
        [sys.executable, "-m", "refusal", "run", str(SMALL), "--out", str(out), *few, *more],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def numbers(directory: Path) -> dict[str, Any]:
    """Return the results and the null without what depends on the time."""
    found = {name: json.loads((directory / name).read_text()) for name in ("results.json", "stages/effects.json")}
    return json.loads(json.dumps(found).replace(str(directory), "RUN"))


def test_two_workers_give_the_results_of_one_process(cluster: Any, tmp_path: Path) -> None:
    run(tmp_path / "alone")
    said = run(tmp_path / "ray", "--ray", cluster.address, "--workers", "2")
    assert "Ray: 2 worker(s) of 1 CPU(s) each" in said
    assert numbers(tmp_path / "ray") == numbers(tmp_path / "alone")
    for name in ("completions.jsonl", "completions_steered.jsonl", "table.jsonl"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    manifest = json.loads((tmp_path / "ray" / "manifest.json").read_text())
    assert manifest["cluster"]["batches"] == "as in one process"
    assert "null" in numbers(tmp_path / "alone")["stages/effects.json"]
