"""Text and table of the rank of each way of declining, for the terminal and the report."""

from __future__ import annotations

from experiments.rank.results import RankEstimate, Ranks
from experiments.run.behaviour import DECLINES, KINDS, Kind
from probes.statistics.intervals import Estimate

TITLE = "Decliners that stop when more directions are ablated (95 %; not part of the verdict)"
HEAD = ["declines", "directions", "stop", "n", "points more with the best number"]


def rank_lines(ranks: Ranks | None) -> list[str]:
    """Return one line for each way of declining: what one direction stops, what more of them stop, and the rank."""
    return [] if ranks is None else [_line(kind, ranks.of(kind)) for kind in KINDS]


def rank_tables(ranks: Ranks | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return title, header and rows of the effect of each number of directions; none if no second one was tried."""
    rows = [
        [DECLINES[kind], str(effect.k), f"{effect.stopped:.0%}", str(effect.stopped.n), _points(effect.more)]
        for kind in KINDS
        for effect in ([] if ranks is None else ranks.of(kind).effects[1:])
        if ranks is not None and len(ranks.of(kind).effects) > 2
    ]
    return [(TITLE, HEAD, rows)] if rows else []


def _line(kind: Kind, of: RankEstimate) -> str:
    what = f"Rank of the {DECLINES[kind]}"
    if of.rank is None:
        return f"{what}: not tested, {of.reason}."
    stopped = {effect.k: f"{effect.stopped.estimate:.0%}" for effect in of.effects}
    effect = f"one direction stops {stopped[1]}"
    if len(stopped) > 2 and of.write_direction is not None:
        effect += f" (the verdict's {of.write_direction.estimate:.0%})"
    if of.best is not None and of.best > 1:
        effect += f", {of.best} directions stop {stopped[of.best]}"
    return f"{what}: {_rank(of)}; {effect}. The search stopped because {of.reason}."


def _rank(of: RankEstimate) -> str:
    if of.rank == 0:
        return f"0, no direction at this layer is shown to stop more than {of.margin:.0%}"
    if of.settled:
        return f"{of.rank}"
    return f"at least {of.rank} (that more directions add less than {of.margin:.0%} is not shown)"


def _points(of: Estimate) -> str:
    """Return a paired difference in percentage points."""
    return (
        ""
        if not of.known
        else "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * value for value in (of.estimate, of.low, of.high)))
    )
