"""How far a run is, a run with nothing to do, and what a newcomer sees first: all without torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.run.run_lock import NAME, RunLock
from extract.shipped import ROOT
from tests.support.covering import matrix
from tests.support.families import tiny
from tests.support.finished_run import mark_done
from tests.support.one_line import one_line, printed
from tests.support.tiny_gguf import tiny_llama, write_gguf

pytestmark = pytest.mark.slow

FIXTURE = ROOT / "tests" / "fixtures" / "small_run"


@pytest.fixture
def done(tmp_path: Path) -> Path:
    run = Path(shutil.copytree(FIXTURE, tmp_path / "run"))
    mark_done(run)
    return run


def without_torch(*arguments: str) -> str:
    """Run the command line in a process and return what it prints; fails if it imports torch or transformers."""
    code = (
        "import sys; from refusal.cli.main import main; sys.argv = ['refusal', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit as ended: assert not ended.code, ended.code\n"
        "found = {'torch', 'transformers', 'sklearn', 'pandas'} & set(sys.modules)\nassert not found, found"
    )
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT,
                           check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout + ended.stderr


def test_a_run_with_nothing_to_do_says_so_without_torch_and_prints_its_results(done: Path) -> None:
    def files() -> dict[Path, int]:  # the committed configuration is of an earlier version, so it is written again
        listed = [path for path in done.rglob("*") if path.is_file() and path.name != "config.yaml"]
        return {path: path.stat().st_mtime_ns for path in listed}

    before = files()
    shown = without_torch("run", str(done / "config.yaml"), "--out", str(done))
    assert f"nothing to do: all stages in {done} are done and unchanged" in " ".join(shown.split())
    assert "One refusal or two?" in shown
    assert files() == before
    shown = without_torch("run", str(done / "config.yaml"), "--out", str(done), "--dry-run")
    assert "nothing to do: all 14 stages" in shown


def test_the_stages_and_the_next_command_and_what_is_no_run(done: Path, cli, tmp_path: Path) -> None:
    shown = without_torch("status", str(done))
    assert "14 of 14 stages are done" in shown
    assert f"report {done}" in shown
    (done / "stages/triggers.json").write_text("{}")
    out = printed(cli("status", str(done)))
    states = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:15]}
    assert {name for name, state in states.items() if state == "stale"} == {"triggers", "results", "report"}
    assert {state for name, state in states.items() if name not in ("triggers", "results", "report")} == {"done"}
    assert out.splitlines()[-1].endswith(f"run {done}/config.yaml --out {done}")
    (done / "manifest.json").unlink()
    assert "0 of 14 stages are done" in cli("status", str(done))[1]
    one_line(cli("status", str(tmp_path)), "is not a run directory: it has no config.yaml")


def test_who_writes_it_now_and_who_was_killed(done: Path, cli) -> None:
    with RunLock(done) as lock:
        lock.at("5/11 probe")
        held = (done / NAME).read_text()
        out = cli("status", str(done))[1]
    assert f"Running: process {os.getpid()} on " in out
    assert "at 5/11 probe since" in out
    assert "Killed" not in out
    (done / NAME).write_text(held)  # as kill -9 leaves it
    out = cli("status", str(done))[1]
    assert f"Killed: process {os.getpid()}" in out
    assert "Running" not in out


def test_the_dissociation_shows_the_other_variants_where_they_are_asked_for(done: Path, cli) -> None:
    def shown(*more: str) -> str:
        code, out, err = cli("dissociate", str(done / "config.yaml"), "--out", str(done), "--quiet", *more)
        assert (code, err) == (0, "")
        return out

    path, one = done / "stages/dissociate.json", {"estimate": 0.5, "low": 0.4, "high": 0.6, "n": 10}
    variant = {"ablated": "normative", "variant": "zero/every/all", "stopped": {"normative": one}}
    found = json.loads(path.read_text()) | {"variants": [variant | {"onset_effect": {}, "benign_answered": one}]}
    path.write_text(json.dumps(found))
    mark_done(done)
    assert "Other variants" not in shown()
    assert "More tables: --verbose" in shown()
    assert "Other variants" in shown("--verbose")


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
def test_the_first_line_comes_before_heavy_imports(kind, more, tmp_path, gguf) -> None:
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


@pytest.mark.parametrize("kind", ["directory", "GGUF file"])
def test_a_dry_run_prints_nothing_of_other_libraries(kind: str, tmp_path: Path, gguf: Path) -> None:
    target = str(gguf if kind == "GGUF file" else tiny("qwen2.5-1.5b-instruct", tmp_path / "tiny-qwen"))
    command = [sys.executable, "-m", "refusal", "run", target, "--dry-run", "--out", str(tmp_path / "run")]
    command += ["--set", "prompts.limit=4", "--set", "generate.limit_dual_use=0"]
    told = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=300,
                              env=environment(tmp_path / "cache"))  # fmt: skip
        assert done.stdout.startswith(f"model           {target}"), done.stdout
        told.append([line.split(":")[1].split()[0] if line.startswith("Note:") else line.split()[0]
                     for line in done.stderr.splitlines()])  # fmt: skip
    made = ["dequantising", "dequantising"] if kind == "GGUF file" else []  # what is done, and its bar
    assert told == [[target, "loading", *made, "measuring"], [target, "loading"]]
