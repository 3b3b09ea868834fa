"""The connection to a Ray cluster: one that runs, or one of this machine that ends with the command."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from extract.errors import UserError, in_one_line

ANY = "auto"  # RAY_ADDRESS, or a cluster that runs on this machine; otherwise one is started
LOCAL = "local"  # one that is started
REACHED_S = 5.0  # seconds in which an address must answer
SILENT_S = 10.0  # seconds without an answer of its head after which a cluster is lost; Ray ends this process after 60
OBJECTS = 100 << 20  # bytes of a started cluster's object store: only names, token ids and directions cross it


@dataclass(frozen=True)
class WorkersWanted:
    """What --ray, --workers, --gpus-per-worker and --local-disks ask for."""

    address: str = ANY
    workers: int | None = None  # None: as many as the cluster has room for
    gpus_per_worker: float | None = None  # None: one where the cluster has GPUs
    local_disks: bool = False  # each node has a run directory of its own; the shards are gathered later


@dataclass(frozen=True)
class Resources:
    """What each worker is given."""

    workers: int
    cpus: float
    gpus: float

    @property
    def described(self) -> str:
        gpus = f"{self.gpus:g} GPU(s) and " if self.gpus else ""
        return f"{self.workers} worker(s) of {gpus}{self.cpus:g} CPU(s) each"


class ClusterLostError(UserError):
    """A cluster without a living node, or whose head is silent."""


@dataclass
class Cluster:
    """A connection to a cluster; `ray` is Ray's module."""

    ray: Any
    _head: str | None  # HOST:PORT at which the cluster must answer; None: it is not asked
    _started: bool  # for this connection, and can be started again

    def check(self) -> None:
        """Raise ClusterLostError if no node is alive, or the head does not answer within `SILENT_S`."""
        until = time.monotonic() + SILENT_S
        while self._head:  # asked by its socket: Ray's own questions would wait until Ray ends this process
            try:
                _refuse_silence(self._head)
                break
            except OSError:
                if time.monotonic() > until:
                    raise ClusterLostError(f"the Ray cluster has not answered for {SILENT_S:.0f} seconds") from None
                time.sleep(0.5)
        if not resources_of_nodes(self.ray):
            raise ClusterLostError("the Ray cluster has no living node")

    def start_again(self, lost: ClusterLostError, say: Callable[[str], None]) -> None:
        """Start a lost cluster again; raises ClusterLostError the second time, or if it was not started here."""
        if not self._started:
            raise ClusterLostError(
                f"{lost}; what is finished is kept: give the same command again, on a cluster that runs"
            )
        say(f"{lost} (was a process killed?); it is started again")
        self._started = False
        self.ray.shutdown()
        _init(self.ray, LOCAL)
        self._head = _own_head(self.ray)


def import_ray() -> Any:
    """Return the module; raises UserError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will do, and it warns until it does
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    return ray


@contextmanager
def connected(address: str = ANY) -> Iterator[Cluster]:
    """Yield a connection to a cluster; disconnect at the end, unless Ray was connected before.

    Raises:
        UserError: Ray is not installed, or nobody answers at the address.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield Cluster(ray, None, False)
        return
    asked = os.environ.get("RAY_ADDRESS", ANY) if address == ANY else address
    try:
        started = asked == LOCAL
        if asked not in (ANY, LOCAL):
            _refuse_silence(asked)
        try:
            _init(ray, asked)
        except ConnectionError:
            if asked != ANY:
                raise
            started = True  # no cluster runs on this machine
            _init(ray, LOCAL)
        head = _own_head(ray) if asked in (ANY, LOCAL) else asked
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"no Ray cluster answers at {asked} ({in_one_line(error)}); start one with: ray start --head, "
            "or give --ray without an address to use this machine"
        ) from None
    try:
        yield Cluster(ray, head, started)
    finally:
        ray.shutdown()


def resources_of_nodes(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of each node that is alive, by Ray's names."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def share(nodes: Sequence[Mapping[str, float]], wanted: WorkersWanted) -> Resources:
    """Return what each worker is given of the nodes' resources; raises UserError if there is less than asked."""
    cpus, gpus = (sum(node.get(what, 0.0) for node in nodes) for what in ("CPU", "GPU"))
    own = wanted.gpus_per_worker if wanted.gpus_per_worker is not None else (1.0 if gpus else 0.0)
    room = sum(int(node.get("GPU", 0.0) // own) for node in nodes) if own else len(nodes)
    workers = wanted.workers or max(1, room)
    if own and workers > room:
        raise UserError(
            f"{workers} worker(s) of {own:g} GPU(s) each were asked for, and the cluster has {gpus:g} "
            f"GPU(s) on {len(nodes)} node(s); give less of --workers or --gpus-per-worker"
        )
    if workers > cpus:
        raise UserError(f"{workers} workers were asked for, and the cluster has {cpus:g} CPU(s); give fewer --workers")
    of_nodes = [int(node.get("CPU", 0.0)) for node in nodes]
    most = max(n for n in range(1, 1 + max(of_nodes)) if sum(cpus // n for cpus in of_nodes) >= workers)
    return Resources(workers, float(most), own)  # the most CPUs with which all find room on the nodes


def _init(ray: Any, address: str) -> None:
    settings = {"include_dashboard": False, "object_store_memory": OBJECTS} if address == LOCAL else {}
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False, **settings)


def _own_head(ray: Any) -> str:
    return str(ray.get_runtime_context().gcs_address)


def _refuse_silence(address: str) -> None:
    """Raise an error of the socket if nobody listens: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("an address is HOST:PORT")
    socket.create_connection((host, int(port)), timeout=REACHED_S).close()
