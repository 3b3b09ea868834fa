"""Measures the rank of each way of declining on a model, and writes stages/rank.json and the directions found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.rank.ablated_model import AblatedModel
from experiments.rank.growth import Growth, measure_growth
from experiments.rank.results import RankEffect, RankEstimate, RankFit, Ranks
from experiments.rank.search import Found, search
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from probes.direction import Direction
from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups
from steering.direction_file import save_directions

DIRECTIONS = "rank_directions.safetensors"
MIN_VALIDATION = 10  # validation decliners that choose between candidates


def measure_ranks(loaded: LoadedRun, directions: Mapping[Kind, Direction], absent: Mapping[Kind, str]) -> None:
    """Search the directions of each way of declining whose behaviour can be tested.

    Args:
        directions: the write directions behind the verdict.
        absent: why a way of declining cannot be tested.
    """
    found = {kind: _measure(loaded, kind, directions.get(kind), absent.get(kind, "")) for kind in KINDS}
    save_directions([one for _, several in found.values() for one in several], loaded.file(DIRECTIONS))
    Ranks(**{kind: estimate for kind, (estimate, _) in found.items()}).write(loaded.file("stages/rank.json"))


def _measure(
    loaded: LoadedRun, kind: Kind, direction: Direction | None, absent: str
) -> tuple[RankEstimate, list[Direction]]:
    samples = write_samples(loaded.behaviour, kind)
    n = len(loaded.behaviour.decliners(kind, "validation"))
    if absent or direction is None or samples is None:
        return _untested(loaded, absent or f"there is no {kind} write direction"), []
    if n < MIN_VALIDATION:
        return _untested(
            loaded,
            f"{n} validation prompts are declined that way, {MIN_VALIDATION} are needed to choose "
            "directions; give more prompts",
        ), []
    config, wanted = loaded.config.dissociate, loaded.config.dissociate.rank
    with loaded.reporter.task(f"directions of declining ({kind})", None) as advance:
        model = AblatedModel(loaded, kind, direction, samples, advance)
        found = search(model, direction.vector, config.margin, config.alpha, None if wanted == "auto" else wanted)
        growth = measure_growth(model, found, config.margin, config.alpha)
        alone = model.outcomes("test", direction.vector[None], np.arange(len(model.groups("test")))).stopped
    return _record(loaded, model, found, growth, alone), replace(model.subspace(found.basis), name=kind).directions


def _record(loaded: LoadedRun, model: AblatedModel, found: Found, growth: Growth, alone: np.ndarray) -> RankEstimate:
    config, groups = loaded.config.dissociate, model.groups("test")
    n = effective_groups(groups)

    def estimate(interval: Estimate) -> Estimate:
        return interval.counted(len(groups), groups)

    return RankEstimate(
        rank=growth.rank,
        settled=growth.settled,
        reason=found.why_stopped,
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        write_direction=estimate(clopper_pearson(float(alone.mean()) * n, n, config.alpha)),
        best=growth.best,
        effects=tuple(
            RankEffect(k=k, stopped=estimate(stopped), more=estimate(more))
            for k, (stopped, more) in enumerate(zip(growth.effects, growth.beyond, strict=True))
        ),
        fits=tuple(
            RankFit(
                fitted_by=fit.fitted_by,
                layer=fit.layer,
                fitted_on=fit.fitted_on,
                still_declining=fit.still,
                stopped_on_validation=fit.stopped,
            )
            for fit in found.fits
        ),
    )


def _untested(loaded: LoadedRun, reason: str) -> RankEstimate:
    config = loaded.config.dissociate
    return RankEstimate(rank=None, reason=reason, margin=config.margin, alpha=config.alpha, variant=config.variant.name)
