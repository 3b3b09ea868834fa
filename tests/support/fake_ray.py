"""A stand-in for Ray in one process: actors die, fail, hang or lose the cluster as a script says."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

from experiments.cluster.connection import Cluster, Resources
from experiments.cluster.workers import ProcessFacts, WorkerError, Workers

Script = dict[Any, list[str]]  # what happens at the first tries of a part; then it is done


class RayError(Exception):
    """Of an actor that has died."""


class RayTaskError(RayError):
    """Of a call that has raised an error."""

    cause = WorkerError("the disk is full")


@dataclass(eq=False)
class Call:
    """A call of an actor, which is also Ray's reference to it."""

    actor: Actor
    method: str
    given: tuple[Any, ...]
    hangs: bool


@dataclass(eq=False)
class Actor:
    """Does its calls in turn, as the script says."""

    script: Script
    queue: list[Call] = field(default_factory=list)
    dead: bool = False

    def __getattr__(self, method: str) -> Any:
        def remote(*given: Any) -> Call:
            hangs = bool(given) and self.script[given[-1]][:1] == ["hangs"]
            if hangs:
                self.script[given[-1]].pop(0)
            self.queue.append(Call(self, method, given, hangs))
            return self.queue[-1]

        return SimpleNamespace(remote=remote)


class Ray:
    """As much of Ray's module as the executor uses."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, script: Script, result: Callable[[Any], Any] = lambda number: 2 * number) -> None:
        self.script, self.result, self.actors = defaultdict(list, script), result, list[Actor]()
        self.processes, self.lost, self.starts = count(), False, 0

    def remote(self, _: type) -> SimpleNamespace:
        def made(*_: Any) -> Actor:
            self.actors.append(Actor(self.script))
            return self.actors[-1]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=made))

    def put(self, value: Any) -> Any:
        return value

    def wait(self, calls: list[Call], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Call], list[Call]]:
        for call in calls:
            if call.actor.dead or (call.actor.queue[0] is call and not call.hangs):
                return [call], []
        time.sleep(0.002)
        return [], calls

    def get(self, call: Call) -> Any:
        if call.actor.dead:
            raise RayError("the actor died")
        call.actor.queue.remove(call)
        if call.method == "facts":
            return ProcessFacts("node", next(self.processes), {})
        if not call.given:
            return None
        tries = self.script[call.given[-1]]
        match tries.pop(0) if tries else "done":
            case "dies":
                call.actor.dead = True
                raise RayError("the actor died")
            case "fails":
                raise RayTaskError
            case "loses the cluster":
                self.lost = True
                raise RayError("the node died")
        return self.result(call.given[-1])

    def kill(self, actor: Actor) -> None:
        actor.dead = True

    def nodes(self) -> list[dict[str, Any]]:
        return [] if self.lost else [{"Alive": True, "Resources": {"CPU": 2.0}}]

    def shutdown(self) -> None:
        self.lost = True

    def init(self, **_: Any) -> None:
        self.lost, self.starts = False, self.starts + 1

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="")


def workers(script: Script, said: list[str], n: int = 2, **settings: Any) -> Workers:
    """Return n workers of a cluster of this command's own."""
    return Workers(Cluster(Ray(script), None, True), Resources(n, 1.0, 0.0), Actor, (), said.append, **settings)


def doubled(executor: Workers, numbers: range, **settings: Any) -> Iterator[tuple[int, Any]]:
    """Have numbers doubled."""
    return executor.run("double", [(number,) for number in numbers], "shared", **settings)
