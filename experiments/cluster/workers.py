"""The executor of parallel work on Ray: starts workers, gives them parts, and replaces those that die, hang or fail.

A part is done at least once and its result taken once. The parts of a worker that dies or fails are given to others; so
are those of one that hangs, which may still finish them. A part that fails in two workers ends the command. A lost
cluster of the command's own is started again once, for the parts that are left.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.cluster.connection import Cluster, ClusterLostError, Resources
from extract.errors import UserError, in_one_line

Arguments = tuple[Any, ...]
AHEAD = 2  # parts that a worker is given: one that it does, one that waits or is being written
POLL_S = 1.0
CHECK_S = 3.0  # between two questions whether the cluster is alive
STALLED_S = 300.0  # without a finished part, and three times as long as any part has taken: a worker hangs
START_S = 600.0  # in which a worker must have found its resources and loaded the model
MOST_DEATHS = 5  # of workers, without a finished part in between
LOST_WORKERS = 3  # of one part that may be given up; one more, and it is


class WorkerError(Exception):
    """A worker's error in one line, with its node and log."""


@dataclass(frozen=True)
class ProcessFacts:
    """What a worker says of itself once it has started."""

    node: str
    process: int
    same: dict[str, str]  # what must be the same in all workers


@dataclass(eq=False)
class _Member:
    actor: Any
    starting: Any  # reference to its facts; None once they have come
    facts: Any = None  # `ProcessFacts`
    calls: dict[Any, int | None] = field(default_factory=dict)  # reference -> place; None: a part of an earlier run
    heard: float = field(default_factory=time.monotonic)  # when it was started, given its first part, or last finished
    hangs: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.facts.process} on {self.facts.node}" if self.facts else "a worker that was starting"


class Workers:
    """Actors of a class whose method `facts` returns `ProcessFacts` once they can work."""

    def __init__(
        self,
        cluster: Cluster,
        resources: Resources,
        actor: type,
        arguments: Arguments,
        say: Callable[[str], None],
        *,
        stalled_s: float = STALLED_S,
        ahead: int = AHEAD,
    ) -> None:
        """Ask Ray for the workers, which start meanwhile; `say` tells of those that were replaced.

        `stalled_s` is infinite where parts may take any time, and workers may wait for resources.
        """
        self._cluster, self._ray, self._checked = cluster, cluster.ray, time.monotonic()
        self._resources, self._say, self._stalled_s, self._ahead = resources, say, stalled_s, ahead
        options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_concurrency": AHEAD}
        self._make = lambda: cluster.ray.remote(actor).options(**options).remote(*arguments)
        self._longest = 0.0  # seconds between two parts of a worker
        self._members = list[_Member]()
        self._begin("", (), (), None)
        self._start(resources.workers)

    def facts(self) -> list[Any]:
        """Return what the workers are, once one has started; raises UserError if it cannot, or differs from others."""
        while not any(member.facts for member in self._members):
            self._listen()
        return [member.facts for member in self._members if member.facts]

    def wait_for_all(self) -> None:
        """Wait until all workers have started; see `facts`."""
        began = time.monotonic()
        while any(member.facts is None for member in self._members):
            self._listen()
            if time.monotonic() - began > START_S:
                raise self._no_start("not all workers")

    def each(self, method: str) -> list[Any]:
        """Call every worker that has started; those that hang are ended first, and those that die are left out.

        Raises:
            UserError: the method failed in a worker.
        """
        hanging = [member.actor for member in self._members if member.hangs]
        for actor in hanging:
            self._ray.kill(actor)
        self._members = [member for member in self._members if not member.hangs]
        started = [member.actor for member in self._members if member.facts]
        answers = []
        try:
            for call in [getattr(actor, method).remote() for actor in (*hanging, *started)]:
                while not self._ray.wait([call], timeout=POLL_S)[0]:
                    self._check(CHECK_S)
                try:
                    answers.append(self._ray.get(call))
                except self._ray.exceptions.RayTaskError as error:
                    raise UserError(_line_of(error)) from None
                except self._ray.exceptions.RayError:  # also of those that hung, once they have ended
                    continue
        except ClusterLostError as lost:
            self._start_again(lost)
        return answers

    def run(
        self,
        method: str,
        parts: Sequence[Arguments],
        *shared: Any,
        give_up: Callable[[Arguments, str], Any] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Have a method called with the arguments of each part; yield the part's place and result, as they come.

        Args:
            shared: first arguments of every call, sent to the cluster once.
            give_up: what takes the place of the result of a part with which too many workers died, by its last error;
                None: such a part ends the command.

        Raises:
            UserError: a part failed in two workers, or no worker or no cluster is left.
        """
        self._begin(method, parts, shared, give_up)
        for _ in parts:
            while not self._results:
                self._hand_out()
                self._listen()
                self._find_stalled()
            yield self._results.popleft()

    def stop(self) -> None:
        for member in self._members:
            self._ray.kill(member.actor)
        self._members = []

    def _begin(self, method: str, parts: Sequence[Arguments], shared: Arguments, give_up: Any) -> None:
        self._method, self._parts, self._shared, self._give_up = method, parts, shared, give_up
        self._sent: list[Any] | None = None  # references to what is shared
        self._waiting, self._results = deque(range(len(parts))), deque[tuple[int, Any]]()
        self._done, self._taken = set[int](), set[int]()  # the latter: from workers that hang
        self._deaths, self._died_with, self._failed = 0, Counter[int](), set[int]()
        for member in self._members:
            member.calls = dict.fromkeys(member.calls)

    def _start(self, n: int = 1) -> None:
        for actor in [self._make() for _ in range(n)]:
            self._members.append(_Member(actor, actor.facts.remote()))

    def _hand_out(self) -> None:
        if self._sent is None:
            self._sent = [self._ray.put(value) for value in self._shared]
        for member in self._members:
            while member.facts and not member.hangs and len(member.calls) < self._ahead and self._waiting:
                place = self._waiting.popleft()
                if place in self._done:
                    continue
                if not member.calls:
                    member.heard = time.monotonic()
                call = getattr(member.actor, self._method).remote(*self._sent, *self._parts[place])
                member.calls[call] = place

    # -- what workers answer -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Wait a moment for answers and take them; replace workers that have died, or a lost cluster."""
        try:
            self._check(CHECK_S)
            calls = {call: member for member in self._members for call in (member.starting, *member.calls)}
            calls.pop(None, None)
            if not calls:
                time.sleep(0.05)
                return
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=POLL_S)
            for call in ready:
                if calls[call] in self._members:  # it was not replaced because of an earlier answer
                    self._answered(calls[call], call)
        except ClusterLostError as lost:
            self._start_again(lost)

    def _answered(self, member: _Member, call: Any) -> None:
        try:
            value = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            self._failure(member, call, _line_of(error))
            return
        except self._ray.exceptions.RayError as error:
            self._died(member, in_one_line(error))
            return
        now = time.monotonic()
        if call == member.starting:
            member.facts, member.starting = value, None
            refuse_different(value, [other.facts for other in self._members if other.facts])
        else:
            if not member.hangs:
                self._longest = max(self._longest, now - member.heard)
            if (place := member.calls.pop(call)) is not None:
                self._take(place, value)
        member.heard, member.hangs = now, False

    def _take(self, place: int, value: Any) -> None:
        if place not in self._done:
            self._done.add(place)
            self._results.append((place, value))
            self._deaths = 0

    def _failure(self, member: _Member, call: Any, line: str) -> None:
        """Retire a worker after an error: its disk may be full. The part is tried by one other worker."""
        others = [other for other in self._members if other is not member and not other.hangs]  # or is starting
        place = member.calls.get(call)
        if call == member.starting or place in self._failed or not others:
            raise UserError(line)
        if place is not None:
            self._failed.add(place)
        self._say(f"{line}; its work goes to others, and it gets no more")
        self._drop(member)

    def _died(self, member: _Member, why: str) -> None:
        self._check()
        places = [place for place in member.calls.values() if place is not None]
        self._died_with.update(places)
        if self._give_up and places:
            for place in places:
                if self._died_with[place] > LOST_WORKERS:
                    self._take(place, self._give_up(self._parts[place], why))
        else:
            self._deaths += 1
            if self._deaths >= MOST_DEATHS:
                raise UserError(f"{self._deaths} workers died and finished nothing in between; the last one: {why}")
        self._say(f"{member.name} died; another is started")
        self._drop(member)
        self._start()

    def _drop(self, member: _Member) -> None:
        """Drop a worker; its parts are first in line again."""
        self._members.remove(member)
        self._wait_again(list(member.calls.values()))
        self._ray.kill(member.actor)

    def _wait_again(self, places: Sequence[int | None]) -> None:
        self._waiting.extendleft(place for place in reversed(places) if place is not None and place not in self._done)

    def _find_stalled(self) -> None:
        """Give the parts of workers that hang to others."""
        patience = max(self._stalled_s, 3 * self._longest)
        for member in self._members:
            if member.calls and not member.hangs and time.monotonic() - member.heard > patience:
                member.hangs = True
                again = [place for place in member.calls.values() if place is not None and place not in self._taken]
                self._taken.update(again)
                self._wait_again(again)
                self._say(f"{member.name} has not answered for {patience:.0f} seconds; its work goes to others")
        if all(member.hangs for member in self._members):
            raise UserError(f"all {len(self._members)} workers have not answered for {patience:.0f} seconds")

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _check(self, every_s: float = 0.0) -> None:
        """Raise ClusterLostError if the cluster is lost, UserError if none of the workers starts."""
        now = time.monotonic()
        if now - self._checked < every_s:
            return
        self._checked = now
        self._cluster.check()
        late = max(START_S, self._stalled_s)
        if self._members and all(not member.facts and now - member.heard > late for member in self._members):
            raise self._no_start("no worker")

    def _start_again(self, lost: ClusterLostError) -> None:
        """Start the cluster and the workers again, for the parts that are left; a second loss ends the command."""
        self._members = []
        self._cluster.start_again(lost, self._say)
        self._waiting = deque(place for place in range(len(self._parts)) if place not in self._done)
        self._sent, self._checked = None, time.monotonic()
        self._taken.clear()
        self._start(self._resources.workers)

    def _no_start(self, who: str) -> UserError:
        return UserError(
            f"{who} started within {START_S:.0f} seconds ({self._resources.described}); see: ray status, "
            "and give fewer --workers or --gpus-per-worker"
        )


def _line_of(error: Exception) -> str:
    cause = getattr(error, "cause", None)
    return str(cause) if isinstance(cause, WorkerError) else in_one_line(error)


def refuse_different(facts: ProcessFacts, others: Sequence[ProcessFacts]) -> None:
    """Raise UserError if a worker differs from another in what numbers depend on, naming the field and the nodes."""
    for other in others:
        for name, value in other.same.items():
            if facts.same.get(name) != value:
                raise UserError(
                    f"workers differ in {name}: {facts.node} has {facts.same.get(name)}, {other.node} has "
                    f"{value}; all nodes need the same installation and the same files"
                )
