"""A pool of Ray workers: does the parts of tasks, and fills the run's store."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from experiments.cluster.connection import WorkersWanted, connected, resources_of_nodes, share
from experiments.cluster.worker import StorePlan, Worker, WorkerFacts
from experiments.cluster.workers import STALLED_S, Workers
from experiments.responses.setting import Part, Result, Task
from experiments.run.config import RunConfig
from extract.errors import UserError
from extract.progress import Reporter
from extract.store.file_lock import store_lock

COMPUTING = ("refusal-probes", "torch", "transformers", "h5py", "numpy")


class RayPool:
    """Workers that are started when they are first needed, and end with the command."""

    def __init__(
        self, config: RunConfig, directory: Path, wanted: WorkersWanted, *, stalled_s: float = STALLED_S
    ) -> None:
        self._config, self._directory, self._wanted, self._stalled_s = config, directory, wanted, stalled_s
        self.reporter, self._open, self._tasks = Reporter(), ExitStack(), 0
        self._notes = list[str]()

    @property
    def started(self) -> bool:
        return "_workers" in self.__dict__

    def map(self, task: Task[Part, Result], parts: Sequence[Part]) -> Iterator[tuple[int, Result]]:
        """Yield the place of each part and its result, as they come; see `Pool.map`."""
        self._tasks += 1
        yield from self._workers.run("do", [(part,) for part in parts], f"task {self._tasks}", task)

    def fill_store(self, said: Sequence[Sequence[int]] | None = None) -> None:
        """Have the workers extract all missing shards, and one of them write the master file.

        `said`: the prompts' plain responses, where thoughts are captured out of them.

        Raises:
            UserError: a shard failed, or the shards are on several disks and have to be gathered.
        """
        workers = self._workers  # what the cluster has no room for is refused before a file is written
        with store_lock(self._directory / "activations.h5"):
            plan = self._plan()
            shards = [(shard, said and said[rows.start : rows.stop]) for shard, rows in plan.rows.items()]
            with self.reporter.task("extracting activations", plan.n_prompts) as advance:
                advance(plan.n_prompts - sum(map(len, plan.rows.values())), remembered=True)
                for place, _ in workers.run("shard", shards):
                    advance(len(plan.rows[shards[place][0]]))
            if self._wanted.local_disks and any(each.rows for each in workers.each("plan")):
                nodes = ", ".join(sorted({each.node for each in self.facts}))
                folder = f"{self._directory.absolute() / 'activations.h5.shards'}/"
                raise UserError(
                    f"all shards are written, each on the disk of its node ({nodes}); copy them to one machine (rsync "
                    f"-a NODE:{folder} {folder}) and run there: refusal extract CONFIG --out {self._directory}"
                )
            list(workers.run("finish", [()]))
            for line in dict.fromkeys(line for remarks in workers.each("close") for line in remarks):
                if line not in self.facts[0].remarks:
                    self._notes.append(line)
                    self.reporter.say(line)

    def _plan(self) -> StorePlan:
        """Return which shards no node has."""
        if not self._wanted.local_disks:
            ((_, plan),) = self._workers.run("plan", [()])
            assert isinstance(plan, StorePlan)
            return plan
        for _ in range(2):  # the second time where the cluster was lost, and started again
            self._workers.wait_for_all()
            if plans := list[StorePlan](self._workers.each("plan")):
                break
        else:
            raise UserError("no worker lives that could say which shards its node has; see: ray status")
        nowhere = set.intersection(*(set(plan.rows) for plan in plans))
        return StorePlan(plans[0].n_prompts, {shard: plans[0].rows[shard] for shard in sorted(nowhere)})

    @property
    def facts(self) -> list[WorkerFacts]:
        return self._workers.facts()

    @property
    def described(self) -> dict[str, int | str | list[str]]:
        """The workers under the manifest's keys; whether numbers are, bit for bit, those of one process."""
        facts, smaller = self.facts, any("out of memory" in note for note in self._notes)
        return {
            "workers": len(facts),
            "nodes": sorted({each.node for each in facts}),
            "threads_per_worker": facts[0].threads,
            "batches": "some smaller than in one process, so equal to rounding" if smaller else "as in one process",
        }

    def _say(self, line: str) -> None:
        self.reporter.say(line)  # of the stage that runs now

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._open.close()

    @cached_property
    def _workers(self) -> Workers:
        cluster = self._open.enter_context(connected(self._wanted.address))
        resources = share(resources_of_nodes(cluster.ray), self._wanted)
        self.reporter.say(f"Ray: {resources.described}; their logs are in {self._directory / 'logs'}")
        config, directory = self._config.model_dump_json(), str(self._directory.absolute())
        arguments = (config, directory, str(Path.cwd()), self._wanted.local_disks)
        workers = Workers(cluster, resources, Worker, arguments, self._say, stalled_s=self._stalled_s)
        self._open.callback(workers.stop)
        first: WorkerFacts = workers.facts()[0]
        here = {name: importlib.metadata.version(name) for name in COMPUTING} | {"python": platform.python_version()}
        for name, version in here.items():
            if first.same[name] != version:
                raise UserError(
                    f"{first.node} has {name} {first.same[name]}, and this process {version}; all nodes "
                    "need the same installation"
                )
        for remark in first.remarks:
            self.reporter.say(remark)
        return workers
