"""A whole run as its user waits for it: time to the first line of what it will answer, to its end, and what it knows.

`--target` is a configuration or a model (docs/own-model.md), `--budget` its time. Power is that of the normative
direction's own effect of .6 against .1 of the other one, at the independent refusals that were tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.table import main
from experiments.dissociation.power import own_effect_power
from experiments.report.results import RunResults
from experiments.run.config import load_config
from extract.shipped import ROOT

SMALL = "prompts.limit=120 extract.layers=[2,4] extract.positions=[post_last] ask=[one-or-two]"
FIRST = ("prompts are read", "the whole run takes")  # of the lines that say what a run will answer


def measure(quick: bool, target: str, budget: str) -> dict[str, float]:
    """Run a target within a budget."""
    given = [part for key in SMALL.split() for part in ("--set", key)] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return _timed([target, "--budget", budget, *given], out) | _known(out)


def _timed(command: list[str], out: Path) -> dict[str, float]:
    """Return the seconds to the first line and the minutes of a run."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    started, first = time.monotonic(), float("nan")
    run = [sys.executable, "-m", "refusal", "run", *command, "--out", str(out)]
    with subprocess.Popen(
        run, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = line
            if first != first and any(words in line for words in FIRST):
                first = time.monotonic() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(run)} ended with {process.returncode}: {last}")
    return {"seconds_to_first_line": first, "minutes": (time.monotonic() - started) / 60}


def _known(run: Path) -> dict[str, float]:
    """Return what a run has read, answered and tested."""
    results, config = RunResults.read(run / "results.json"), load_config(run)
    answered = sum(results.prompts.values())
    own = (e.n_groups for e in results.dissociation.effects if e.ablated == e.behaviour == "normative")
    refusals = next(own, None) or 0.0
    return {
        "prompts_read": answered + results.only_read,
        "prompts_answered": answered,
        "independent_refusals_tested": refusals,
        "power_own_effect": own_effect_power(config.dissociate, refusals),
    }


if __name__ == "__main__":
    main("whole_run", measure, target=("configs/quickstart.yaml",), budget=("1h",))
