"""A pool of Ray workers: does the parts of tasks, and fills the run's store."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.cluster.connection import (
    Cluster,
    ClusterLostError,
    WorkersWanted,
    connected,
    resources_of_nodes,
    share,
)
from experiments.cluster.worker import StorePlan, WorkerFacts
from experiments.cluster.workers import STALLED_S, Workers
from experiments.responses.pool import Part, Result, Task
from experiments.run.config import RunConfig
from extract.errors import UserError
from extract.progress import Reporter
from extract.store.file_lock import store_lock

COMPUTING = ("refusal-probes", "torch", "transformers", "h5py", "numpy")


@dataclass(frozen=True)
class Company:
    """The workers of a command, under the manifest's keys."""

    workers: int
    nodes: list[str]
    threads_per_worker: int
    batches: str  # whether numbers are those of one process with as many threads, bit for bit


class RayPool:
    """Workers that are started when they are first needed, and end with the command."""

    def __init__(
        self, config: RunConfig, directory: Path, wanted: WorkersWanted, *, stalled_s: float = STALLED_S
    ) -> None:
        """Prepare the pool of a run.

        Args:
            stalled_s: seconds without an answer after which a worker's work goes to others.
        """
        self._config, self._directory, self._wanted, self._stalled_s = config, directory, wanted, stalled_s
        self.reporter, self._open, self._tasks = Reporter(), ExitStack(), 0
        self._notes = list[str]()

    @property
    def started(self) -> bool:
        """Whether there are workers."""
        return "_workers" in self.__dict__

    def map(self, task: Task[Part, Result], parts: Sequence[Part]) -> Iterator[tuple[int, Result]]:
        """Yield the place of each part and its result, as they come; see `Pool.map`."""
        left = dict(enumerate(parts))
        self._tasks += 1
        try:
            name, workers, shipped = f"task {self._tasks}", self._workers, self._cluster.ray.put(task)
            done = workers.run(len(parts), lambda actor, place: actor.do.remote(name, shipped, parts[place]))
            for place, result in done:
                del left[place]
                yield place, result
        except ClusterLostError as lost:
            self._start_again(lost)
            places = list(left)
            for which, result in self.map(task, [left[place] for place in places]):
                yield places[which], result

    def fill_store(self) -> None:
        """Have the workers extract all missing shards, and one of them write the master file.

        Raises:
            UserError: a shard failed, or the shards are on several disks and have to be gathered.
        """
        _ = self._workers  # what the cluster has no room for is refused before a file is written
        with store_lock(self._directory / "activations.h5"):
            while True:
                try:
                    return self._fill(self._plan())
                except ClusterLostError as lost:  # a second one ends the command
                    self._start_again(lost)

    def _fill(self, plan: StorePlan) -> None:
        workers, shards = self._workers, list(plan.rows)
        with self.reporter.task("extracting activations", plan.n_prompts) as advance:
            advance(plan.n_prompts - sum(plan.rows.values()), remembered=True)
            for place, _ in workers.run(len(shards), lambda actor, place: actor.shard.remote(shards[place])):
                advance(plan.rows[shards[place]])
        if self._wanted.local_disks and any(each.rows for each in workers.each(lambda actor: actor.plan.remote())):
            raise self._to_gather()
        list(workers.run(1, lambda actor, place: actor.finish.remote()))
        for line in dict.fromkeys(line for each in workers.each(lambda actor: actor.close.remote()) for line in each):
            if line not in self.facts[0].remarks:
                self._notes.append(line)
                self.reporter.say(line)

    def _plan(self) -> StorePlan:
        """Return which shards no node has."""
        if not self._wanted.local_disks:
            ((_, plan),) = self._workers.run(1, lambda actor, place: actor.plan.remote())
            assert isinstance(plan, StorePlan)
            return plan
        self._workers.wait_for_all()
        plans = self._workers.each(lambda actor: actor.plan.remote())
        nowhere = set.intersection(*(set(plan.rows) for plan in plans))
        return StorePlan(plans[0].n_prompts, {shard: plans[0].rows[shard] for shard in sorted(nowhere)})

    def _to_gather(self) -> UserError:
        nodes, folder = sorted({each.node for each in self.facts}), self._directory.absolute() / "activations.h5.shards"
        return UserError(
            f"all shards are written, each on the disk of its node ({', '.join(nodes)}); copy them to one "
            f"machine (rsync -a NODE:{folder}/ {folder}/) and run there: refusal extract CONFIG --out "
            f"{self._directory}"
        )

    @property
    def facts(self) -> list[WorkerFacts]:
        """What the workers are."""
        return self._workers.facts()

    @property
    def company(self) -> Company:
        """Who does the work, for the manifest."""
        facts = self.facts
        smaller = any("out of memory" in note for note in self._notes)
        return Company(
            workers=len(facts),
            nodes=sorted({each.node for each in facts}),
            threads_per_worker=facts[0].threads,
            batches="some smaller than in one process, so equal to rounding" if smaller else "as in one process",
        )

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._open.close()

    @cached_property
    def _cluster(self) -> Cluster:
        return self._open.enter_context(connected(self._wanted.address))

    @cached_property
    def _workers(self) -> Workers:
        cluster = self._cluster
        resources = share(resources_of_nodes(cluster.ray), self._wanted)
        self.reporter.say(f"Ray: {resources.described}; their logs are in {self._directory / 'logs'}")
        arguments = (
            self._config.model_dump_json(),
            str(self._directory.absolute()),
            str(Path.cwd()),
            self._wanted.local_disks,
        )
        workers = Workers(cluster, resources, arguments, lambda line: self.reporter.say(line), self._stalled_s)
        self._open.callback(workers.stop)
        first = workers.facts()[0]
        self._refuse_other_versions(first)
        for remark in first.remarks:
            self.reporter.say(remark)
        return workers

    def _start_again(self, lost: ClusterLostError) -> None:
        self._cluster.start_again(lost, self.reporter.say)
        self.__dict__.pop("_workers", None)

    @staticmethod
    def _refuse_other_versions(facts: WorkerFacts) -> None:
        here = {name: importlib.metadata.version(name) for name in COMPUTING} | {"python": platform.python_version()}
        for name, version in here.items():
            if facts.same[name] != version:
                raise UserError(
                    f"{facts.node} has {name} {facts.same[name]}, and this process {version}; all nodes "
                    "need the same installation"
                )


@contextmanager
def ray_pool(config: RunConfig, directory: Path, wanted: WorkersWanted) -> Iterator[RayPool]:
    """Yield a pool for one command."""
    pool = RayPool(config, directory, wanted)
    try:
        yield pool
    finally:
        pool.close()
