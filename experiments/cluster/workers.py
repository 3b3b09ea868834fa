"""The workers of a command: starts them, gives them parts, and replaces those that die, hang or fail.

A part is done at least once and its result taken once. The parts of a worker that dies or fails are given to others; so
are those of one that hangs, which may still finish them. A part that fails in two workers ends the command.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.cluster.connection import Cluster, ClusterLostError, Resources
from experiments.cluster.worker import Worker, WorkerError, WorkerFacts, refuse_different
from extract.errors import UserError, in_one_line

Submit = Callable[[Any, int], Any]  # a worker, a part's place -> reference
AHEAD = 2  # parts that a worker is given: one that it does, one that waits or is being written
POLL_S = 1.0
CHECK_S = 3.0  # between two questions whether the cluster is alive
STALLED_S = 300.0  # without a finished part, and three times as long as any part has taken: a worker hangs
START_S = 600.0  # in which a worker must have found its resources and loaded the model
MOST_DEATHS = 5  # of workers, without a finished part in between


@dataclass(eq=False)
class _Member:
    actor: Any
    starting: Any  # reference to its facts; None once they have come
    facts: WorkerFacts | None = None
    calls: dict[Any, int] = field(default_factory=dict)  # reference -> place
    heard: float = field(default_factory=time.monotonic)  # when it was started, given its first part, or last finished
    hangs: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.facts.process} on {self.facts.node}" if self.facts else "a worker that was starting"


class Workers:
    """Actors of `Worker`."""

    def __init__(
        self,
        cluster: Cluster,
        resources: Resources,
        arguments: Sequence[Any],
        say: Callable[[str], None],
        stalled_s: float,
    ) -> None:
        """Ask Ray for the workers; they load the model meanwhile.

        Args:
            arguments: of `Worker`.
            say: tells the user of workers that were replaced.
            stalled_s: as `STALLED_S`.
        """
        self._cluster, self._ray, self._checked = cluster, cluster.ray, time.monotonic()
        self._resources, self._say, self._stalled_s = resources, say, stalled_s
        options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_concurrency": AHEAD}
        self._make = lambda: cluster.ray.remote(Worker).options(**options).remote(*arguments)
        self._members = [self._started() for _ in range(resources.workers)]
        self._deaths, self._failed = 0, dict[int, list[str]]()
        self._longest = 0.0  # seconds between two parts of a worker

    def facts(self) -> list[WorkerFacts]:
        """Return what the workers are; waits until the first has loaded the model, and takes the others as they come.

        Raises:
            UserError: it could not be started, or differs from this process.
        """
        while not any(member.facts for member in self._members):
            self._listen({}, deque(), lambda place, value: None)
        return [member.facts for member in self._members if member.facts]

    def wait_for_all(self) -> None:
        """Wait until all workers have loaded the model; see `facts`."""
        began = time.monotonic()
        while any(member.facts is None for member in self._members):
            self._listen({}, deque(), lambda place, value: None)
            if time.monotonic() - began > START_S:
                raise self._no_start("not all workers")

    def each(self, call: Callable[[Any], Any]) -> list[Any]:
        """Call every worker that has started; those that hang are ended first, and those that die are left out."""
        hanging = [member.actor for member in self._members if member.hangs]
        for actor in hanging:
            self._ray.kill(actor)
        self._answers([actor.close.remote() for actor in hanging])  # an error, once they have ended
        self._members = [member for member in self._members if not member.hangs]
        return self._answers([call(member.actor) for member in self._members if member.facts])

    def run(self, n: int, submit: Submit) -> Iterator[tuple[int, Any]]:
        """Have n parts done; yield the place and the result of each, as they come.

        Raises:
            UserError: a part failed in two workers, or no worker or no cluster is left.
        """
        self._deaths, self._failed = 0, {}
        waiting, done, unsent = deque(range(n)), dict[int, Any](), deque[int]()
        taken: set[int] = set()  # parts that someone may still be doing

        def take(place: int, value: Any) -> None:
            if place in done:
                return
            done[place] = value
            unsent.append(place)
            self._deaths = 0

        while len(done) < n:
            for member in self._members:
                while member.facts and not member.hangs and len(member.calls) < AHEAD and waiting:
                    place = waiting.popleft()
                    if place in done:
                        continue
                    if not member.calls:
                        member.heard = time.monotonic()
                    member.calls[submit(member.actor, place)] = place
            self._listen(done, waiting, take)
            self._find_stalled(waiting, taken)
            while unsent:
                place = unsent.popleft()
                yield place, done[place]
                done[place] = None

    def stop(self) -> None:
        """End all workers."""
        for member in self._members:
            self._ray.kill(member.actor)
        self._members = []

    # -- what workers answer -------------------------------------------------------------------------------------------

    def _listen(self, done: Mapping[int, Any], waiting: deque[int], take: Callable[[int, Any], None]) -> None:
        """Wait a moment for answers and take them; replace workers that have died."""
        self._check(CHECK_S)
        references = {reference: member for member in self._members for reference in member.calls}
        references |= {member.starting: member for member in self._members if member.starting is not None}
        if not references:
            time.sleep(0.05)
            return
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=POLL_S)
        for reference in ready:
            member = references[reference]
            if member in self._members:  # it was not replaced because of an earlier answer
                self._answered(member, reference, done, waiting, take)

    def _answered(
        self,
        member: _Member,
        reference: Any,
        done: Mapping[int, Any],
        waiting: deque[int],
        take: Callable[[int, Any], None],
    ) -> None:
        errors = self._ray.exceptions
        place = member.calls.get(reference)
        try:
            value = self._ray.get(reference)
        except errors.RayTaskError as error:
            self._failure(member, place, _line(error), done, waiting)
        except (errors.RayActorError, errors.RayError) as error:
            self._died(member, in_one_line(error), done, waiting)
        else:
            now = time.monotonic()
            if place is not None and not member.hangs:
                self._longest = max(self._longest, now - member.heard)
            member.heard, member.hangs = now, False
            if place is None:
                member.facts, member.starting = value, None
                refuse_different(value, [other.facts for other in self._members if other.facts])
            else:
                del member.calls[reference]
                take(place, value)

    def _failure(
        self, member: _Member, place: int | None, line: str, done: Mapping[int, Any], waiting: deque[int]
    ) -> None:
        """Retire a worker after an error: its disk may be full. The part is tried by one other worker."""
        if place is None:
            raise UserError(line)
        earlier = self._failed.setdefault(place, [])
        earlier.append(line)
        others = [other for other in self._members if other is not member and not other.hangs]  # or is starting
        if len(earlier) > 1 or not others:
            raise UserError(line)
        self._say(f"{line}; its work goes to others, and it gets no more")
        self._give_up(member, done, waiting)

    def _died(self, member: _Member, why: str, done: Mapping[int, Any], waiting: deque[int]) -> None:
        self._check()
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            raise UserError(f"{self._deaths} workers died and finished nothing in between; the last one: {why}")
        self._say(f"{member.name} died; another is started")
        self._give_up(member, done, waiting)
        self._members.append(self._started())

    def _give_up(self, member: _Member, done: Mapping[int, Any], waiting: deque[int]) -> None:
        """Drop a worker; its parts are first in line again."""
        self._members.remove(member)
        waiting.extendleft(place for place in reversed(member.calls.values()) if place not in done)
        self._ray.kill(member.actor)

    def _find_stalled(self, waiting: deque[int], taken: set[int]) -> None:
        """Give the parts of workers that hang to others, and start another worker where there is room."""
        for member in self._members:
            if member.calls and not member.hangs and time.monotonic() - member.heard > self._patience:
                member.hangs = True
                again = [place for place in member.calls.values() if place not in taken]
                taken.update(again)
                waiting.extendleft(reversed(again))
                self._say(f"{member.name} has not answered for {self._patience:.0f} seconds; its work goes to others")
        if all(member.hangs for member in self._members):
            raise UserError(f"all {len(self._members)} workers have not answered for {self._patience:.0f} seconds")

    @property
    def _patience(self) -> float:
        return max(self._stalled_s, 3 * self._longest)

    def _no_start(self, who: str) -> UserError:
        return UserError(
            f"{who} started within {START_S:.0f} seconds ({self._resources.described}); see: ray status, "
            "and give fewer --workers or --gpus-per-worker"
        )

    def _check(self, every_s: float = 0.0) -> None:
        """Raise UserError if the cluster is lost, or none of the workers starts."""
        now = time.monotonic()
        if now - self._checked < every_s:
            return
        self._checked = now
        try:
            self._cluster.check()
        except ClusterLostError:
            self._members = []
            raise
        if self._members and all(not member.facts and now - member.heard > START_S for member in self._members):
            raise self._no_start("no worker")

    def _answers(self, references: Sequence[Any]) -> list[Any]:
        answers = []
        for reference in references:
            while not self._ray.wait([reference], timeout=POLL_S)[0]:
                self._check(CHECK_S)
            try:
                answers.append(self._ray.get(reference))
            except self._ray.exceptions.RayError:
                continue
        return answers

    def _started(self) -> _Member:
        actor = self._make()
        return _Member(actor, actor.facts.remote())


def _line(error: Any) -> str:
    """Return the line of a worker's error."""
    cause = getattr(error, "cause", None)
    return str(cause) if isinstance(cause, WorkerError) else in_one_line(error)
