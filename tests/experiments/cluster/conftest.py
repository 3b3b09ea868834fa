"""Fixtures: a Ray cluster of this machine, and commands that use it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import pytest
import yaml

from experiments.cluster.connection import connected, resources_of_nodes
from extract.shipped import ROOT

QUICK = ROOT / "configs" / "quickstart.yaml"
ROWS = 2  # prompts of a shard
N_PROMPTS = 400


@dataclass
class Command:
    process: subprocess.Popen[str]
    directory: Path

    def workers(self) -> list[int]:
        """Return the processes of its workers that are alive, by their logs, the oldest first."""
        logs = sorted((self.directory / "logs").glob("worker-*.log"), key=lambda path: path.stat().st_mtime_ns)
        found = [int(path.stem.rsplit("-", 1)[-1]) for path in logs]
        return [pid for pid in found if Path(f"/proc/{pid}").exists()]

    def child(self, name: str) -> int:
        for path in Path("/proc").glob("[0-9]*/stat"):
            pid, comm, _, parent = path.read_text().split()[:4]
            if (comm, parent) == (f"({name})", str(self.process.pid)):
                return int(pid)
        raise AssertionError(f"no {name}")

    def shards(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "activations.h5.shards").glob("*.h5"))

    def wait_for(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        """Wait until a condition holds; fail if the command ends first or time is over."""
        until = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < until, self.end()
            time.sleep(0.02)

    def end(self, seconds: float = 240) -> tuple[int, str]:
        try:
            printed, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            printed, _ = self.process.communicate()
        return self.process.returncode, printed

    def finish(self) -> str:
        """Return what it printed; it must succeed."""
        code, printed = self.end()
        assert code == 0, printed
        return printed

    def fail(self, seconds: float = 240, *, clean: bool = True) -> str:
        """Return its last line; it must end with exit code 2 and, where no process is killed, print no traceback."""
        code, printed = self.end(seconds)
        assert code == 2, printed
        assert not (clean and "Traceback" in printed), printed
        return printed.strip().splitlines()[-1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


Start = Callable[..., Command]


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of an organism with few layers and small shards."""
    settings = yaml.safe_load(QUICK.read_text())
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    own = (ROOT / "organisms/zoo/two-knobs/prompts.jsonl").read_text().splitlines()
    prompts.write_text("\n".join(own[:: len(own) // N_PROMPTS][:N_PROMPTS]) + "\n")
    settings["prompts"] = {"path": str(prompts)}
    settings["extract"] = settings.get("extract", {}) | {"rows_per_shard": ROWS}
    path = prompts.with_name("few.yaml")
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="session")
def start(config: Path) -> Start:
    """Starts a command in a directory; with an address, on that cluster."""

    def start_one(directory: Path, address: str | None = None, *more: str, workers: int = 2) -> Command:
        words = [sys.executable, "-m", "refusal", "extract", str(config), "--out", str(directory)]
        words += ["--ray", address, "--workers", str(workers)] if address else []
        process = subprocess.Popen(
            [*words, *more], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Command(process, directory)

    return start_one


@pytest.fixture(scope="session")
def uninterrupted(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of the store that one process with one thread writes."""
    directory = tmp_path_factory.mktemp("alone") / "run"
    start(directory).finish()
    return digests(directory)


def digests(directory: Path) -> list[str]:
    shards = sorted((directory / "activations.h5.shards").glob("*.h5"))
    found = []
    for path in shards:
        with h5py.File(path) as file:
            found.append(bytes(file.attrs["digest"]).decode())
    with h5py.File(directory / "activations.h5") as master:
        assert bool(master.attrs["complete"])
    return found


@contextmanager
def ray_cluster(num_cpus: int) -> Iterator[Any]:
    """A cluster of one node on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": num_cpus, "object_store_memory": 100 << 20})
    try:
        yield made
    finally:
        made.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as made:
        yield made


def own_disk() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[Any]:
    """A cluster of two nodes of one processor, of which the second sees another disk under `runs`."""
    if not own_disk():
        pytest.skip("needs the right to mount")
    (tmp_path / "runs").mkdir()
    (tmp_path / "other").mkdir()
    ray = Path(sys.executable).with_name("ray")
    with ray_cluster(1) as made:
        join = f"{ray} start --address {made.address} --num-cpus 1 --object-store-memory {100 << 20} --block"
        mount = f"mount --bind {tmp_path / 'other'} {tmp_path / 'runs'} && exec {join}"
        node = subprocess.Popen(["unshare", "-m", "sh", "-c", mount], stdout=subprocess.DEVNULL, start_new_session=True)
        with connected(made.address) as joined:
            until = time.monotonic() + 60
            while len(resources_of_nodes(joined.ray)) < 2 and time.monotonic() < until:
                time.sleep(0.2)
        yield made
        os.killpg(node.pid, signal.SIGTERM)
        node.wait()
