"""`refusal sweep`: mistakes, a plan, failing cells beside finished ones, resuming, kill -9, Ctrl-C, and Ray workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml

from experiments.run.run_lock import lock_holder
from extract.shipped import ROOT
from tests.conftest import ORGANISM, refusal
from tests.support.one_line import one_line, printed

pytestmark = pytest.mark.slow

SMALL = yaml.safe_load("""
{prompts.limit: 60, extract.layers: [1, 4], extract.positions: [post_last], generate.max_new_tokens: 8,
 dissociate.positions: [post_last], dissociate.n_null_onset: 19, dissociate.n_null_generation: 0, dissociate.n_onset: 4,
 dissociate.n_side_effects: 2, dissociate.variants: false, triggers.patched: 0, triggers.erased: 0,
 triggers.attributed: 0, steer.one_dial: false, steer.system_lines: []}""")


@pytest.fixture
def sweep(tmp_path: Path):
    def write(**keys: object) -> tuple[str, Path]:
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({"name": "some", "config": "configs/quickstart.yaml", "set": SMALL} | keys))
        return str(path), tmp_path / "out"

    return write


def commands(directory: Path, cell: str) -> int:
    return (directory / cell / "log.txt").read_text().count(" Command: ")


@pytest.mark.parametrize(
    ("keys", "options", "part"),
    [
        ({"keys": {"sead": [0]}}, (), "did you mean seed?"),
        ({"keys": {"seed": [0]}}, ("--set", "steer.bend=1"), "did you mean steer.band?"),
        ({"keys": {"seed": [0]}}, ("--budget", "soon"), "is no time"),
        ({"keys": {"seed": [0]}}, ("--gpus-per-worker", "1"), "give --ray, too"),
        ({"keys": {"seed": [0]}}, ("--set", "seed=1"), "seed is both in keys and in set"),
        ({"keys": {"seed": [0]}}, ("--workers", "0"), "at least 1"),
        ({"keys": {"seed": [0]}}, ("--ray", "localhost:1"), "no Ray cluster answers at localhost:1"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(cli, sweep, keys: dict, options: tuple[str, ...], part: str) -> None:
    file, out = sweep(**keys)
    one_line(cli("sweep", file, "--out", str(out), *options), part)
    assert not out.exists()


def test_a_dry_run_lists_the_cells_and_writes_nothing(cli, sweep) -> None:
    file, out = sweep(keys={"seed": [0, 1]})
    plan = printed(cli("sweep", file, "--out", str(out), "--dry-run"))
    assert [line.split() for line in plan.splitlines()[:2]] == [["seed-0", "left"], ["seed-1", "left"]]
    assert f"2 cells in {out}: 0 done, 2 to run" in plan
    plan = printed(cli("sweep", file, "--out", str(out), "--dry-run", "--json"))
    assert [cell["status"] for cell in json.loads(plan)["cells"]] == ["left", "left"]
    assert not out.exists()


def test_cells_that_fail_are_all_run_and_named_with_their_logs(cli, sweep) -> None:
    file, out = sweep(models=["./nowhere", "./neither"])
    code, printed, err = cli("sweep", file, "--out", str(out), "--workers", "2")
    assert code == 1
    assert "table.html" in printed
    last = err.splitlines()[-2:]
    assert [line.split(":")[1].strip() for line in last] == ["nowhere", "neither"]
    for name, line in zip(("nowhere", "neither"), last, strict=True):
        assert f"./{name}" in line
        assert line.endswith(f"log: {out / name / 'log.txt'}")
        assert f"./{name}" in (out / name / "log.txt").read_text()
    table = pd.read_parquet(out / "table.parquet")
    assert list(table["status"]) == ["failed", "failed"]
    assert "./nowhere" in table["error"][0]
    _, printed, _ = cli("sweep", file, "--out", str(out), "--dry-run")
    assert printed.splitlines()[0].startswith("nowhere  failed: ")


def test_a_failing_cell_stops_no_other_and_what_is_done_is_not_done_again(sweep, tmp_path: Path) -> None:
    late = tmp_path / "late"
    file, out = sweep(models=[str(late), "organisms/zoo/two-knobs"], keys={"seed": [0]})
    first = refusal("sweep", file, "--out", str(out), "--json")
    assert first.returncode == 1, first.stderr
    found = json.loads(first.stdout)
    assert found["failed"] == ["late_seed-0"]
    assert [cell["status"] for cell in found["cells"]] == ["failed", "done"]
    done, results = found["cells"][1], json.loads((out / "two-knobs_seed-0" / "results.json").read_text())
    assert done["verdict"] == results["dissociation"]["verdict"]
    assert done["over_refusal_before"] == results["rates"]["before"]["over_refusal"]["estimate"]
    assert done["minutes"] > 0
    assert (out / done["report"]).is_file()
    shutil.copytree(ORGANISM, late)
    again = refusal("sweep", file, "--out", str(out))
    assert again.returncode == 0, again.stderr
    assert "(1 remembered)" in again.stderr
    assert commands(out, "two-knobs_seed-0") == 1
    assert list(pd.read_parquet(out / "table.parquet")["status"]) == ["done", "done"]
    assert not (out / "late_seed-0" / "failure.json").exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    third = refusal("sweep", file, "--out", str(out))
    assert third.returncode == 0
    assert "nothing to do: all 2 cells" in " ".join(third.stderr.split())
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "refusal", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True)


def running(cell: Path, driver: subprocess.Popen[str]) -> psutil.Process:
    until = time.monotonic() + 120
    while time.monotonic() < until and driver.poll() is None:
        holder = lock_holder(cell)
        if holder is not None and holder.step and (cell / "manifest.json").is_file():
            return psutil.Process(holder.process)
        time.sleep(0.02)
    raise AssertionError(driver.communicate()[1])


def gone(process: psutil.Process) -> bool:
    try:
        process.wait(10)
    except psutil.TimeoutExpired:
        return False
    return True


def test_a_killed_sweep_takes_its_cell_along_and_goes_on_where_it_stopped(sweep) -> None:
    file, out = sweep(keys={"seed": [0]})
    driver = start("sweep", file, "--out", str(out))
    cell = running(out / "seed-0", driver)
    second = refusal("sweep", file, "--out", str(out))
    assert second.returncode == 2
    assert "is in use by process" in second.stderr
    driver.kill()
    assert gone(cell)
    again = refusal("sweep", file, "--out", str(out))
    assert again.returncode == 0, again.stderr
    log = (out / "seed-0" / "log.txt").read_text()
    assert log.count(" Command: ") == 2
    assert log.count("extract done in") == 1  # the stage that had finished is not run again


def test_ctrl_c_says_how_to_go_on(sweep) -> None:
    file, out = sweep(keys={"seed": [0]})
    driver = start("sweep", file, "--out", str(out))
    cell = running(out / "seed-0", driver)
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Stopped; the same command goes on where it stopped: ")
    assert gone(cell)
    assert "Stopped by the user" in (out / "seed-0" / "log.txt").read_text()


def test_on_ray_a_cell_whose_worker_is_killed_is_run_again_and_another_may_fail(sweep) -> None:
    pytest.importorskip("ray")
    file, out = sweep(models=["organisms/zoo/two-knobs", "./nowhere"])
    driver = start("sweep", file, "--out", str(out), "--ray=local", "--workers", "1")
    cell = running(out / "two-knobs", driver)
    worker = cell.parent()
    assert worker.pid != driver.pid
    worker.kill()
    assert gone(cell)
    printed, err = driver.communicate(timeout=300)
    assert driver.returncode == 1, err
    assert err.splitlines()[-1].startswith("Failed: nowhere: ")
    assert "table.html" in printed
    assert list(pd.read_parquet(out / "table.parquet")["status"]) == ["done", "failed"]
    assert commands(out, "two-knobs") == 2
