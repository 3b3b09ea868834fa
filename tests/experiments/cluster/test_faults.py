"""Workers, nodes and commands that die, hang or find no disk: the store is that of one uninterrupted process."""

import os
import random
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.cluster.connection import WorkersWanted
from experiments.cluster.ray_pool import RayPool
from experiments.run.config import load_config
from extract.progress import Reporter
from tests.experiments.cluster.conftest import Command, Start, digests, ray_cluster

pytestmark = pytest.mark.slow


def check(directory: Path, uninterrupted: list[str]) -> None:
    assert digests(directory) == uninterrupted
    left = [path.name for path in (directory / "activations.h5.shards").iterdir() if path.suffix != ".h5"]
    assert left == []


def test_a_killed_worker_is_replaced(start: Start, cluster: Any, uninterrupted: list[str], tmp_path: Path) -> None:
    command = start(tmp_path / "run", cluster.address)
    command.wait_for(lambda: len(command.shards()) > 3)
    os.kill(command.workers()[0], signal.SIGKILL)
    printed = command.finish()
    assert "died; another is started" in printed
    assert "Ray: 2 worker(s) of 1 CPU(s) each" in printed
    assert "400/400" in printed
    check(tmp_path / "run", uninterrupted)


def test_random_kills(start: Start, cluster: Any, uninterrupted: list[str], tmp_path: Path) -> None:
    """Of workers, and now and then of the command itself, which is started again."""
    rng, directory, kills, first = random.Random(0), tmp_path / "run", 0, dict[str, int]()
    command = start(directory, cluster.address)
    while kills < 6 and command.process.poll() is None:
        known = len(command.shards())
        until = time.monotonic() + 60
        while command.process.poll() is None and len(command.shards()) == known and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.3))
        for name in command.shards():
            inode = (directory / "activations.h5.shards" / name).stat().st_ino
            assert first.setdefault(name, inode) == inode, f"{name} was committed twice"
        if rng.random() < 0.2:
            command.kill()
            command = start(directory, cluster.address)
        elif workers := command.workers():
            os.kill(rng.choice(workers), signal.SIGKILL)
        kills += 1
    command.finish()
    assert kills >= 5  # the store may be finished before the last
    check(directory, uninterrupted)


def test_a_removed_node_takes_nothing_along(start: Start, uninterrupted: list[str], tmp_path: Path) -> None:
    with ray_cluster(1) as nodes:
        leaving = nodes.add_node(num_cpus=1, object_store_memory=100 << 20)
        command = start(tmp_path / "run", nodes.address)
        command.wait_for(lambda: len(command.workers()) == 2 and len(command.shards()) > 3)
        nodes.remove_node(leaving, allow_graceful=False)
        assert "died; another is started" in command.finish()
    check(tmp_path / "run", uninterrupted)


LOST = {"raylet": "the Ray cluster has no living node", "gcs_server": "the Ray cluster has not answered for 10 seconds"}


def kill_cluster(command: Command, process: str, shards: int) -> None:
    """Kill a process of the command's own cluster, and the workers, which would go on for some seconds."""
    command.wait_for(lambda: len(command.workers()) == 2 and len(command.shards()) > shards)
    for pid in (command.child(process), *command.workers()):
        os.kill(pid, signal.SIGKILL)


def again(process: str) -> str:
    return f"{LOST[process]} (was a process killed?); it is started again"


def test_the_command_s_own_cluster_is_started_again_within_30_seconds(
    start: Start, uninterrupted: list[str], tmp_path: Path
) -> None:
    command = start(tmp_path / "run", "local")
    kill_cluster(command, "gcs_server", shards=3)
    command.wait_for(lambda: len(command.workers()) > 0, seconds=60)  # of the second cluster, which needs some to start
    assert again("gcs_server") in command.finish()
    check(tmp_path / "run", uninterrupted)


def test_the_second_loss_ends_the_command_and_the_next_one_goes_on(
    start: Start, uninterrupted: list[str], tmp_path: Path
) -> None:
    command = start(tmp_path / "run", "local")
    kill_cluster(command, "raylet", shards=3)
    kill_cluster(command, "raylet", shards=len(command.shards()) + 3)
    code, printed = command.end(30)
    assert again("raylet") in printed
    told = f"refusal: {LOST['raylet']}; what is finished is kept: give the same command again, on a cluster that runs"
    assert (code, printed.strip().splitlines()[-1]) == (2, told)
    start(tmp_path / "run").finish()
    check(tmp_path / "run", uninterrupted)


def test_the_loss_of_a_cluster_that_ran_before_is_said_within_30_seconds(start: Start, tmp_path: Path) -> None:
    with ray_cluster(2) as nodes:
        command = start(tmp_path / "run", nodes.address)
        command.wait_for(lambda: len(command.workers()) == 2 and len(command.shards()) > 3)
        nodes.head_node.kill_raylet()
        for pid in command.workers():
            os.kill(pid, signal.SIGKILL)
        assert LOST["raylet"] in command.fail(30, clean=False)


def test_a_second_command_on_the_same_run_is_refused(
    start: Start, cluster: Any, uninterrupted: list[str], tmp_path: Path
) -> None:
    command = start(tmp_path / "run", cluster.address)
    command.wait_for(lambda: len(command.shards()) > 0)
    assert f"{tmp_path / 'run'} is in use by " in start(tmp_path / "run", cluster.address).fail(clean=False)
    command.finish()
    check(tmp_path / "run", uninterrupted)


def test_a_full_disk_of_one_worker_leaves_its_shards_to_the_other(
    start: Start, cluster: Any, uninterrupted: list[str], tmp_path: Path
) -> None:
    command = start(tmp_path / "run", cluster.address)
    command.wait_for(lambda: len(command.workers()) > 0)  # before its first shard: the other may do all the rest alone
    resource.prlimit(command.workers()[0], resource.RLIMIT_FSIZE, (32_000, 32_000))  # a shard is larger
    printed = command.finish()
    assert "File too large" in printed
    assert "its work goes to others, and it gets no more" in printed
    check(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("wakes", [False, True])
def test_the_shards_of_a_worker_that_hangs_go_to_others(
    start: Start, config: Path, cluster: Any, uninterrupted: list[str], tmp_path: Path, wakes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    said, directory, failed = list[str](), tmp_path / "run", list[BaseException]()
    directory.mkdir()
    command = Command(None, directory)  # type: ignore[arg-type]
    pool = RayPool(load_config(config), directory, WorkersWanted(cluster.address, 2), stalled_s=4.0)
    pool.reporter = Reporter(quiet=True, log=said.append)

    def fill() -> None:
        try:
            pool.fill_store()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        until = time.monotonic() + 90
        while not command.shards() and time.monotonic() < until:  # early: it must have work left
            time.sleep(0.01)
        hanging = command.workers()[0]
        os.kill(hanging, signal.SIGSTOP)
        while not any("has not answered" in line for line in said) and time.monotonic() < until:
            time.sleep(0.05)
        if wakes:
            os.kill(hanging, signal.SIGCONT)
        thread.join(120)
    finally:
        os.kill(hanging, signal.SIGCONT)
        pool.close()
    assert failed == []
    assert any("its work goes to others" in line for line in said)
    if not wakes:  # a process that is stopped cannot be ended, so its partial file is left to the next writer
        start(directory).finish()
    check(directory, uninterrupted)
