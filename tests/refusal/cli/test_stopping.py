"""Ctrl-C in real processes: one line, exit code 130, and the same command goes on; then status and log tell of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.run.run_lock import NAME
from extract.shipped import ROOT
from tests.support.make_small_run import some_prompts

CONFIG = """
name: small
model: {name: organisms/zoo/two-knobs}
prompts: {path: prompts.jsonl}
extract: {layers: [1, 4], positions: [post_last]}
generate: {max_new_tokens: 8, batch_size: 2}
dissociate: {positions: [post_last]}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(8)) + "\n")
    (tmp_path / "small.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return ["probe", "small.yaml", "--out", "run"]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "refusal", *arguments]
    return subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True)


def interrupt(process: subprocess.Popen[str], when: str) -> str:
    """Send Ctrl-C once the lock file says `when`; return standard error."""
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if Path("run", NAME).exists() and when in Path("run", NAME).read_text():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Stopped; the same command goes on where it stopped: ")
    assert err.splitlines()[-1].endswith(" probe small.yaml --out run")
    assert not Path("run", NAME).exists()
    return err


@pytest.mark.slow
def test_while_it_imports(small: list[str]) -> None:
    printed = interrupt(start(small), "process").splitlines()
    assert len(printed) == 1 + (printed[0] == "Note: loading the libraries")  # that it stopped, and no trace


DROPPED = """
import signal, sys, time
from refusal.cli.program import resumable

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

with resumable():
    Interrupted()
    print("dropped", flush=True)
    time.sleep(20)
    print("went on")
"""


def test_while_python_would_drop_it() -> None:
    """Python ignores an exception in a finalizer: without care the run would go on."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, cwd=ROOT, timeout=100,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stdout == "dropped\n"
    assert done.stderr.startswith("Stopped; the same command goes on where it stopped: ")


@pytest.mark.slow
def test_in_a_stage_and_then_it_goes_on(small: list[str], cli) -> None:
    def done() -> list[str]:
        code, out, err = cli("status", "run", "--json")
        assert code == 0, err
        return [stage["name"] for stage in json.loads(out)["stages"] if stage["state"] == "done"]

    interrupt(start(small), "2/3 respond")
    assert done() == ["extract"]
    again = start(small)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert done() == ["extract", "respond", "probe"]
    assert "1/3 extract" not in err
    log = Path("run/log.txt").read_text()
    assert log.count("Command: refusal probe small.yaml --out run") == 2
    for part in ("1/3 extract done in", "2/3 respond begins", "Stopped by the user", "3/3 probe done in", "Finished"):
        assert log.count(part) == 1 + (part == "2/3 respond begins"), part
