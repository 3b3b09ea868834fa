"""The rank of each way of declining on a model: the search, and the growth of its effect on held-out prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from experiments.rank.ablated_model import AblatedModel
from experiments.rank.results import Growth, RankEffect, RankEstimate, Ranks
from experiments.rank.search import HELD_OUT, Ablatable, Part, SearchedDirections, search
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from probes.direction import Direction
from probes.statistics.intervals import effective_groups
from probes.statistics.tango import tango
from scoring.rates import grouped_rate
from steering.direction_file import save_directions

DIRECTIONS = "rank_directions.safetensors"
MIN_VALIDATION = 10  # validation decliners that choose between candidates


def measure_growth(model: Ablatable, searched: SearchedDirections, margin: float, alpha: float) -> Growth:
    """Ablate the first k directions for each k, on validation and test prompts.

    The best number is chosen on validation prompts. The numbers below it are tested in order and the first that is not
    rejected is the rank, so no correction for their number is needed. A rank above the true one is reported with a
    probability below alpha: where the true growth equals the margin, in 1 to 4 % of simulations with 17 to 200
    decliners at alpha 5 %.
    """

    def stopped(part: Part, k: int) -> Bool[np.ndarray, " decliners"]:
        n = len(model.groups(part))
        return model.outcomes(part, searched.basis[:k], np.arange(n)).stopped if k else np.zeros(n, dtype=bool)

    validation, test = ([stopped(part, k) for k in range(len(searched.basis) + 1)] for part in HELD_OUT)
    best = int(np.argmax([each.mean() for each in validation]))  # the least such number
    return judge_growth(test, best, model.groups("test"), margin, alpha)


def judge_growth(
    stopped: Sequence[Bool[np.ndarray, " decliners"]],
    best: int,
    groups: Shaped[np.ndarray, " decliners"],
    margin: float,
    alpha: float,
) -> Growth:
    """Return the growth and the rank from what stops under the first 0, 1, … directions."""
    n = effective_groups(groups)
    beyond = [tango(stopped[best], each, n, alpha) for each in stopped]
    rank = next(k for k in range(best + 1) if k == best or beyond[k].low <= margin)
    effects = [
        RankEffect(k=k, stopped=grouped_rate(each, groups, alpha), more=beyond[k].counted(len(groups), groups))
        for k, each in enumerate(stopped)
    ]
    settled = beyond[rank].high < margin or rank == best
    return Growth(rank=rank, settled=settled, best=best, effects=tuple(effects))


def measure_ranks(loaded: LoadedRun, directions: Mapping[Kind, Direction], absent: Mapping[Kind, str]) -> None:
    """Search the directions of each way of declining; `absent` says why one cannot be tested."""
    measured = {kind: _measure(loaded, kind, directions.get(kind), absent.get(kind, "")) for kind in KINDS}
    save_directions([one for _, several in measured.values() for one in several], loaded.file(DIRECTIONS))
    Ranks(**{kind: estimate for kind, (estimate, _) in measured.items()}).write(loaded.file("stages/rank.json"))


def _measure(
    loaded: LoadedRun, kind: Kind, direction: Direction | None, absent: str
) -> tuple[RankEstimate, list[Direction]]:
    samples = write_samples(loaded.behaviour, kind)
    n = len(loaded.behaviour.decliners(kind, "validation"))
    lacking = absent
    if direction is None or samples is None:
        lacking = lacking or f"there is no {kind} write direction"
    elif n < MIN_VALIDATION:
        what = f"{n} validation prompts are declined that way, {MIN_VALIDATION} are needed to choose directions"
        lacking = lacking or f"{what}; give more prompts"
    if lacking or direction is None or samples is None:
        return RankEstimate(rank=None, reason=lacking, **_settings(loaded)), []
    config, wanted = loaded.config.dissociate, loaded.config.dissociate.rank
    with loaded.reporter.task(f"directions of declining ({kind})", None) as advance:
        model = AblatedModel(loaded, kind, direction, samples, advance)
        searched = search(model, direction.vector, config.margin, config.alpha, None if wanted == "auto" else wanted)
        growth, groups = measure_growth(model, searched, config.margin, config.alpha), model.groups("test")
        alone = model.outcomes("test", direction.vector[None], np.arange(len(groups))).stopped
    estimate = RankEstimate(
        **dict(growth),
        **_settings(loaded),
        reason=searched.why_stopped,
        write_direction=grouped_rate(alone, groups, config.alpha),
        fits=searched.fits,
    )
    return estimate, replace(model.subspace(searched.basis), name=kind).directions


def _settings(loaded: LoadedRun) -> dict[str, Any]:
    config = loaded.config.dissociate
    return {"margin": config.margin, "alpha": config.alpha, "variant": config.variant.name}
