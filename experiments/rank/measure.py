"""The rank of each way of declining on a model: the search, and the growth of its effect on held-out prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Shaped

from experiments.rank.ablated_model import AblatedModel
from experiments.rank.results import RankEffect, RankEstimate, Ranks
from experiments.rank.search import Ablatable, SearchedDirections, search
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from probes.direction import Direction
from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups
from probes.statistics.tango import tango
from steering.direction_file import save_directions


@dataclass(frozen=True)
class Growth:
    """Effects of the first 0, 1, … directions on test decliners, and what the best number adds beyond each.

    The rank is the least number of directions beyond which no growth above the margin is shown. The best number is
    chosen on validation prompts. The numbers below it are tested in order and the first that is not rejected is the
    rank, so no correction for their number is needed. A rank above the true one is reported with a probability below
    alpha: where the true growth equals the margin, in 1 to 4 % of simulations with 17 to 200 decliners at alpha 5 %.
    """

    effects: tuple[RankEffect, ...]  # by number of directions
    best: int
    rank: int
    settled: bool  # it is also shown that the best number adds less than the margin beyond the rank


def measure_growth(model: Ablatable, searched: SearchedDirections, margin: float, alpha: float) -> Growth:
    """Ablate the first k directions for each k, on validation and test prompts."""
    validation, test = (
        [_stopped(model, part, searched.basis[:k]) for k in range(len(searched.basis) + 1)]
        for part in ("validation", "test")
    )
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
        RankEffect(k=k, stopped=share_stopped(each, groups, alpha), more=beyond[k].counted(len(groups), groups))
        for k, each in enumerate(stopped)
    ]
    return Growth(tuple(effects), best, rank, beyond[rank].high < margin or rank == best)


def share_stopped(
    stopped: Bool[np.ndarray, " decliners"], groups: Shaped[np.ndarray, " decliners"], alpha: float
) -> Estimate:
    """Return the share of decliners that stops."""
    n = effective_groups(groups)
    return clopper_pearson(float(stopped.mean()) * n, n, alpha).counted(len(groups), groups)


def _stopped(model: Ablatable, part: str, basis: np.ndarray) -> Bool[np.ndarray, " decliners"]:
    n = len(model.groups(part))  # type: ignore[arg-type]
    if not len(basis):
        return np.zeros(n, dtype=bool)
    return model.outcomes(part, basis, np.arange(n)).stopped  # type: ignore[arg-type]


DIRECTIONS = "rank_directions.safetensors"
MIN_VALIDATION = 10  # validation decliners that choose between candidates


def measure_ranks(loaded: LoadedRun, directions: Mapping[Kind, Direction], absent: Mapping[Kind, str]) -> None:
    """Search the directions of each way of declining whose behaviour can be tested.

    Args:
        directions: the write directions behind the verdict.
        absent: why a way of declining cannot be tested.
    """
    measured = {kind: _measure(loaded, kind, directions.get(kind), absent.get(kind, "")) for kind in KINDS}
    save_directions([one for _, several in measured.values() for one in several], loaded.file(DIRECTIONS))
    Ranks(**{kind: estimate for kind, (estimate, _) in measured.items()}).write(loaded.file("stages/rank.json"))


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
        searched = search(model, direction.vector, config.margin, config.alpha, None if wanted == "auto" else wanted)
        growth = measure_growth(model, searched, config.margin, config.alpha)
        alone = model.outcomes("test", direction.vector[None], np.arange(len(model.groups("test")))).stopped
    return _record(loaded, model, searched, growth, alone), replace(
        model.subspace(searched.basis), name=kind
    ).directions


def _record(
    loaded: LoadedRun, model: AblatedModel, searched: SearchedDirections, growth: Growth, alone: np.ndarray
) -> RankEstimate:
    config = loaded.config.dissociate
    return RankEstimate(
        rank=growth.rank,
        settled=growth.settled,
        reason=searched.why_stopped,
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        write_direction=share_stopped(alone, model.groups("test"), config.alpha),
        best=growth.best,
        effects=growth.effects,
        fits=searched.fits,
    )


def _untested(loaded: LoadedRun, reason: str) -> RankEstimate:
    config = loaded.config.dissociate
    return RankEstimate(rank=None, reason=reason, margin=config.margin, alpha=config.alpha, variant=config.variant.name)
