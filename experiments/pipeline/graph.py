"""The graph of stages: which stages' files each stage reads. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter

from experiments.responses.loaded_run import LoadedRun


@dataclass(frozen=True)
class Stage:
    """One stage: its function, the stages whose files it reads, its configuration sections, and its output files.

    A stage that judges takes `RunInputs` and so cannot use a model; a stage that measures takes `LoadedRun`.
    """

    name: str
    run: Callable[[LoadedRun], None]
    reads: tuple[str, ...]  # stages
    sections: tuple[str, ...]  # of the configuration
    outputs: tuple[str, ...]


def in_order(stages: Iterable[Stage], until: Collection[str]) -> list[Stage]:
    """List some stages and all they read from, directly or not, each stage after those it reads.

    Stages that do not depend on each other keep their given order.
    """
    by_name = {stage.name: stage for stage in stages}
    wanted: set[str] = set()
    waiting = list(until)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += by_name[name].reads
    sorter = TopologicalSorter({name: by_name[name].reads for name in by_name if name in wanted})
    place = {name: i for i, name in enumerate(by_name)}
    sorter.prepare()
    ready, ordered = list(sorter.get_ready()), []
    while ready:
        name = min(ready, key=place.__getitem__)
        ready.remove(name)
        ordered.append(by_name[name])
        sorter.done(name)
        ready += sorter.get_ready()
    return ordered


def dependents(stages: Iterable[Stage], name: str) -> list[Stage]:
    """List a stage and all stages that read from it, directly or not."""
    listed = list(stages)
    after, grown = {name}, True
    while grown:
        more = {stage.name for stage in listed if after.intersection(stage.reads)}
        grown = not more <= after
        after |= more
    return [stage for stage in listed if stage.name in after]
