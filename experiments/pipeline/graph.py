"""The graph of stages: which stages' files each stage reads. Runs nothing and imports no model."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from experiments.dials.results import FILES, TOKEN_READINGS
from experiments.run.config import RunConfig


@dataclass(frozen=True)
class Stage:
    """One stage: the stages whose files it reads, its configuration sections, and its output files."""

    name: str
    reads: tuple[str, ...]  # stages
    sections: tuple[str, ...]  # of the configuration
    outputs: tuple[str, ...]


STAGES = (
    Stage("extract", (), ("model", "extract"), ("activations.h5",)),
    Stage("respond", (), ("model", "generate", "judge"), ("completions.jsonl",)),
    Stage(
        "uncertainty",
        ("respond",),
        ("seed", "sampling"),
        ("uncertainty.jsonl", "prompts_by_model.jsonl", "stages/uncertainty.json"),
    ),
    Stage(
        "trigger_measures",
        ("extract", "respond"),
        ("seed", "prompts", "triggers"),
        ("stages/trigger_measures.json", "stages/trigger_projection.json", "attributions.jsonl"),
    ),
    Stage("triggers", ("trigger_measures",), (), ("stages/triggers.json",)),
    Stage(
        "probe",
        ("extract", "respond"),
        ("seed", "prompts", "selection"),
        ("probes.parquet", "directions.safetensors", "stages/geometry.json", "stages/probe.json"),
    ),
    Stage("effects", ("probe",), ("seed", "measuring"), ("stages/effects.json",)),
    Stage("rank", ("probe",), ("seed", "ranking"), ("stages/rank.json", "rank_directions.safetensors")),
    Stage("dissociate", ("effects",), ("verdict",), ("stages/dissociate.json",)),
    Stage(
        "category_effects",
        ("extract", "respond"),
        ("seed", "prompts", "categories", "selection"),
        ("stages/category_effects.json",),
    ),
    Stage("categories", ("category_effects",), ("verdict",), ("stages/categories.json",)),
    Stage("gate_open", ("probe",), ("measuring",), ("stages/gate_open.json",)),
    Stage("steer", ("probe",), ("steer",), FILES),
    Stage("token_readings", ("steer",), (), (TOKEN_READINGS,)),
    Stage("results", ("triggers", "dissociate", "gate_open", "steer"), ("uncertainty",), ("results.json",)),
    Stage("report", ("results", "token_readings"), (), ("report.html",)),
)


def stages_of(config: RunConfig) -> tuple[Stage, ...]:
    """Return the graph of a run; sampled uncertainty and the rank are read only if the configuration asks for them."""
    more = {"results": "uncertainty"} if config.uncertainty.samples else {}
    more |= {"dissociate": "rank"} if config.dissociate.rank != 1 else {}
    return tuple(replace(s, reads=(*s.reads, more[s.name])) if s.name in more else s for s in STAGES)


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
