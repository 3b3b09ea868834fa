"""The growth of an effect with the number of directions, on prompts held out from all fits, and the rank it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Shaped

from experiments.rank.search import Ablatable, Found
from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups
from probes.statistics.tango import tango


@dataclass(frozen=True)
class Growth:
    """Effects of the first 0, 1, … directions on test decliners, and what the best number adds beyond each.

    The rank is the least number of directions beyond which no growth above the margin is shown. The best number is
    chosen on validation prompts. The numbers below it are tested in order and the first that is not rejected is the
    rank, so no correction for their number is needed. A rank above the true one is reported with a probability below
    alpha: where the true growth equals the margin, in 1 to 4 % of simulations with 17 to 200 decliners at alpha 5 %.
    """

    effects: tuple[Estimate, ...]  # share that stops, by number of directions
    beyond: tuple[Estimate, ...]  # paired: what the best number stops, less what this number stops
    best: int
    rank: int
    settled: bool  # it is also shown that the best number adds less than the margin beyond the rank


def measure_growth(model: Ablatable, found: Found, margin: float, alpha: float) -> Growth:
    """Ablate the first k directions for each k, on validation and test prompts."""
    validation, test = (
        [_stopped(model, part, found.basis[:k]) for k in range(len(found.basis) + 1)] for part in ("validation", "test")
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
    effects = [clopper_pearson(float(each.mean()) * n, n, alpha) for each in stopped]
    return Growth(tuple(effects), tuple(beyond), best, rank, beyond[rank].high < margin or rank == best)


def _stopped(model: Ablatable, part: str, basis: np.ndarray) -> Bool[np.ndarray, " decliners"]:
    n = len(model.groups(part))  # type: ignore[arg-type]
    if not len(basis):
        return np.zeros(n, dtype=bool)
    return model.outcomes(part, basis, np.arange(n)).stopped  # type: ignore[arg-type]
