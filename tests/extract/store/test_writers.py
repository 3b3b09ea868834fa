"""Concurrent and killed writers of a store."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from extract.store.activation_store import ActivationStore
from extract.store.file_lock import FileLock, store_lock
from extract.store.integrity import verify
from extract.store.writer import finish, writing
from tests.support.made_up_store import captured, content, enter, index, made_up, nothing_left_over, shards, values
from tests.support.one_line import refused

ROOT = Path(__file__).resolve().parents[3]


class Nursery:
    """Starts and awaits processes that extract (see nursery.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._answer() == "ready"

    def start(self, path: Path, **how: object) -> int:
        return self._order({"start": str(path), **how})

    def wait(self, process: int) -> int:
        return self._order({"wait": process})

    def kill(self, process: int) -> int:
        os.kill(process, signal.SIGKILL)
        return self.wait(process)

    def error(self, process: int) -> str:
        return (self.folder / f"error-{process}").read_text()

    def stalled(self, process: int) -> None:
        """Wait until a process stands in the midst of a shard."""
        until(lambda: (self.folder / f"stalled-{process}").exists())

    def written(self) -> dict[int, set[int]]:
        """Return the shards each process has written."""
        found: dict[int, set[int]] = {}
        for line in (self.folder / "log").read_text().splitlines():
            process, shard = map(int, line.split())
            found.setdefault(process, set()).add(shard)
        return found

    def clear(self) -> None:
        for file in self.folder.iterdir():
            file.unlink()

    def end(self) -> None:
        self._process.communicate(timeout=60)

    def _order(self, order: dict[str, object]) -> int:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        return json.loads(self._process.stdout.readline())


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def shared_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.end()


@pytest.fixture
def nursery(shared_nursery: Nursery) -> Nursery:
    shared_nursery.clear()
    return shared_nursery


@pytest.fixture(scope="module")
def uninterrupted(shared_nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store one process made in one go."""
    path = tmp_path_factory.mktemp("whole") / "activations.h5"
    assert shared_nursery.wait(shared_nursery.start(path)) == 0
    assert verify(path).findings == ()
    return path


def same_data(path: Path, other: Path) -> None:
    with ActivationStore(path) as one, ActivationStore(other) as two:
        assert one.digests == two.digests
        assert one.describe().digest == two.describe().digest
        for layer in one.layers:
            for position in one.positions:
                found, wanted = one.read_tensor(layer, position), two.read_tensor(layer, position)
                assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))
        np.testing.assert_array_equal(one.present, two.present)
    for mine, theirs in zip(shards(path), shards(other), strict=True):
        assert mine.read_bytes() == theirs.read_bytes()


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_20_kills_lose_at_most_the_shard_in_flight_each(nursery: Nursery, uninterrupted: Path, tmp_path: Path) -> None:
    path, seed = tmp_path / "activations.h5", random.randrange(2**32)
    print(f"seed {seed}")
    draw, kills, done = random.Random(seed), 0, {}
    while kills < 20:
        process = nursery.start(path)
        time.sleep(draw.uniform(0, 0.4))
        ended = nursery.kill(process)
        if ended == 0:  # it was quicker: its store is whole, and the next begins again
            same_data(path, uninterrupted)
            nothing_left_over(path)
            shutil.rmtree(path.parent / "activations.h5.shards")
            path.unlink()
            done = {}
            continue
        assert ended == -signal.SIGKILL
        kills += 1
        now = {file.name: (file.stat().st_ino, file.read_bytes()) for file in shards(path)}
        assert now.items() >= done.items(), "a shard that was there is gone or was written again"
        done = now
        for file, (_, data) in done.items():
            assert data == (uninterrupted.parent / "activations.h5.shards" / file).read_bytes()
        if path.exists():  # then all is there
            assert verify(path).findings == ()
        assert len(list(path.parent.rglob("*.partial"))) <= 1
    assert nursery.wait(nursery.start(path)) == 0
    same_data(path, uninterrupted)
    nothing_left_over(path)
    assert verify(path).findings == ()


@pytest.mark.slow
def test_what_a_killed_writer_held_is_free(nursery: Nursery, uninterrupted: Path, path: Path) -> None:
    process = nursery.start(path, stall=3)
    nursery.stalled(process)
    assert nursery.kill(process) == -signal.SIGKILL
    left = {file.suffix for file in path.with_name("activations.h5.shards").iterdir()}
    assert left == {".h5", ".lock", ".partial"}  # it was killed in the midst indeed
    assert len(shards(path)) == 2
    assert nursery.wait(nursery.start(path)) == 0
    same_data(path, uninterrupted)
    nothing_left_over(path)


# -- several writers ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_process_is_refused_and_the_first_unharmed(nursery: Nursery, uninterrupted: Path, path: Path) -> None:
    first = nursery.start(path, stall=2)
    nursery.stalled(first)
    second = nursery.start(path)
    assert nursery.wait(second) == 2
    message = nursery.error(second)
    assert message.startswith(f"{path} is being written by process {first} on ")
    assert message.endswith("; wait until it ends")
    assert "\n" not in message
    (nursery.folder / "go").touch()
    assert nursery.wait(first) == 0
    assert set(nursery.written()) == {first}
    same_data(path, uninterrupted)
    nothing_left_over(path)


def test_two_writers_in_one_process_are_two_writers(path: Path) -> None:
    with writing(made_up(path)) as files:
        refused(rf"is being written by process {os.getpid()} on .*; wait until it ends", enter, path)
        files.write(0, captured(files.rows(0)))
    enter(path)


def test_workers_of_one_command_write_shards_at_once(path: Path) -> None:
    """Two may write the same shard, where one was taken for dead: the first one counts."""
    with store_lock(path), writing(made_up(path), locked=True) as files, writing(made_up(path), locked=True) as others:
        tasks = [(each.write, shard) for each in (files, others) for shard in range(3)]
        threads = [threading.Thread(target=write, args=(k, captured(files.rows(k)))) for write, k in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first = [file.stat().st_ino for file in shards(path)]
        others.write(1, captured(files.rows(1), -values()))
        assert [file.stat().st_ino for file in shards(path)] == first
        refused("is being written by process", enter, path)
        finish(files, *index(), {})
    np.testing.assert_array_equal(content(path), values().numpy())
    nothing_left_over(path)


def test_a_forked_child_leaves_its_parents_lock_alone(path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(writing(made_up(path)))
        child = os.fork()
        if child == 0:
            try:
                stack.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [file.name for file in path.with_name("activations.h5.shards").iterdir()] == ["writer.lock"]
        refused("is being written", enter, path)


def test_a_lock_unlinked_under_a_waiting_writer_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening a lock file and locking it, its holder may finish and remove it, and a third make it again."""
    path, real, third = tmp_path / "x.lock", fcntl.flock, FileLock(tmp_path / "x.lock")
    path.touch()
    calls = []

    def slow(fd: int, how: int) -> None:
        if not calls:
            calls.append(fd)
            path.unlink()
            assert third.acquire()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    second = FileLock(path)
    assert not second.acquire()
    third.release()
    assert second.acquire()


def test_a_file_system_without_locks_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_fd: int, _how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    refused(r"cannot lock .*writer\.lock: Function not implemented; its file system", enter, path)
