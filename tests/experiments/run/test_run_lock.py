"""The lock on a run directory: real processes, one killed; and the command line that it shows."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.run.run_lock import NAME, RunLock, RunLog, command_line, is_held, lock_holder
from extract.errors import UserError
from extract.shipped import ROOT

HOLD = """
import sys, time
from pathlib import Path
from experiments.run.run_lock import RunLock
with RunLock(Path(sys.argv[1])) as lock:
    lock.at("3/11 respond")
    print("held", flush=True)
    sys.stdin.read()
"""


def start(directory: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until its input ends."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD, str(directory)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=-1, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_a_second_writer_is_told_who_holds_it_and_takes_it_after_a_kill(tmp_path: Path, cli) -> None:
    first = start(tmp_path)
    assert is_held(tmp_path)
    with pytest.raises(UserError, match=f"is in use by process {first.pid} on .* since 20.*wait until it ends"):
        RunLock(tmp_path).__enter__()
    given = ("extract", "configs/quickstart.yaml", "--out", str(tmp_path))
    code, out, err = cli(*given)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert f"process {first.pid}" in err
    assert cli(*given, "--dry-run", "--quiet")[0] == 0  # what only reads is free to
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert not is_held(tmp_path)
    holder = lock_holder(tmp_path)
    assert holder is not None
    assert (holder.process, holder.step) == (first.pid, "3/11 respond")  # the file of a killed process stays
    with RunLock(tmp_path):
        holder = lock_holder(tmp_path)
        assert holder is not None
        assert holder.process == os.getpid()
    assert not (tmp_path / NAME).exists()


def test_asking_whether_it_is_held_does_not_get_into_a_writers_way(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{}")
    until, asked = time.monotonic() + 0.2, 0
    while time.monotonic() < until:
        with RunLock(tmp_path):
            asked += 1
    assert asked > 0
    assert not is_held(tmp_path)
    assert not (tmp_path / NAME).exists()  # asking makes no file


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["refusal", "run", "a b.yaml"], "refusal run 'a b.yaml'"),
        (["/opt/refusal/__main__.py", "run", "x"], "refusal run x"),
        (["refusal", "--set", "judge.api_key=abc", "--token", "abc"], "refusal --set 'judge.api_key=***' --token '***'"),  # noqa: E501
        (["refusal", "http://me:abc@host/v1", "hf_abcdefgh12"], "refusal 'http://***@host/v1' '***'"),
        (["refusal", "--max-new-tokens", "24", "--set", "generate.max_new_tokens=24"],
         "refusal --max-new-tokens 24 --set generate.max_new_tokens=24"),
        (["refusal", "--set", "extract.response_tokens=2"], "refusal --set extract.response_tokens=2"),
    ],
)  # fmt: skip
def test_a_shown_command_line_has_no_secrets(given: list[str], shown: str) -> None:
    assert command_line(given) == shown


def test_the_log_records_warnings_and_how_it_ends(tmp_path: Path) -> None:
    import warnings

    log = RunLog(tmp_path)
    with pytest.warns(UserWarning, match="odd"), log.recording():
        warnings.warn("odd", UserWarning, stacklevel=1)
    with pytest.raises(ValueError, match="bad"), log.recording():
        raise ValueError("bad\nthing")
    with pytest.raises(KeyboardInterrupt), log.recording():
        raise KeyboardInterrupt
    lines = [line.partition(" ")[2] for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert lines[0].startswith("Command: ")
    assert lines[1].startswith("Versions: Python 3.")
    assert "torch" in lines[1]
    assert lines[2].startswith("Warning: UserWarning: odd (test_run_lock.py:")
    assert lines[3] == "Finished"
    assert [line for line in lines if line.startswith(("Ended", "Stopped"))] == [
        "Ended with ValueError: bad thing", "Stopped by the user",
    ]  # fmt: skip
