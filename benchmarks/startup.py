"""Start-up of commands: processor seconds of whole processes, and their ratio to the bare imports they cannot avoid.

Each command runs in a process of its own, several times in turns, and the least time counts, since other load only adds
to it. `imports` is `import torch` and transformers' names for loading a model and decoding with it, which load most of
that library; `lazy_imports` is `import torch, transformers` alone, which loads little of it. `generate` answers one
prompt with one token on a shipped organism. The rerun is that of a finished run in which nothing has changed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.table import main
from extract.shipped import ROOT
from tests.support.finished_run import mark_done

SMALL_RUN = ROOT / "tests" / "fixtures" / "small_run"
ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
IMPORTS = (
    "import torch; from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM"
)


def measure(quick: bool) -> dict[str, float]:
    """Time every command and both imports."""
    with tempfile.TemporaryDirectory() as folder:
        commands = _commands(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(1 if quick else 5):
            for name, command in commands.items():
                seconds[name].append(_processor_seconds(command))
    least = {name: min(times) for name, times in seconds.items()}
    figures = {f"seconds_{name}": time for name, time in least.items()}
    return figures | {
        "ratio_generate_vs_imports": least["generate"] / least["imports"],
        "ratio_generate_vs_lazy_imports": least["generate"] / least["lazy_imports"],
    }


def _commands(folder: Path) -> dict[str, list[str]]:
    refusal = [sys.executable, "-m", "refusal"]
    answers = folder / "answers.jsonl"
    answers.write_text(
        json.dumps({"id": "a", "prompt": "how?", "completion": "I cannot help.", "label": "benign"}) + "\n"
    )
    run = folder / "run"
    shutil.copytree(SMALL_RUN, run)
    mark_done(run)
    return {
        "help": [*refusal, "--help"],
        "score": [*refusal, "score", str(answers)],
        "generate": [*refusal, "generate", str(ORGANISM), "hello", "--max-new-tokens", "1"],
        "rerun": [*refusal, "run", str(run / "config.yaml"), "--out", str(run)],
        "imports": [sys.executable, "-c", IMPORTS],
        "lazy_imports": [sys.executable, "-c", "import torch, transformers"],
    }


def _processor_seconds(command: list[str]) -> float:
    """Return the processor seconds of a process and those it starts, in user and system mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main("startup", measure)
