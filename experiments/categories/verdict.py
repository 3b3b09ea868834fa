"""Verdicts on categories of one way of declining: one knob, distinct knobs, or some shared.

Every claim is a conjunction of one-sided statements about shares of decliners that stop, tested at alpha / 2 each as
the limits of the dissociation verdict are. A conjunction is claimed at the largest p of its parts (intersection-union,
Berger 1982). Claims about named pairs are corrected together, each kind of claim by itself (Holm 1979); that *all*
pairs share one knob is one conjunction and needs no correction.

On a pair A, B, with `own` the effect of a category's own ablation and `cross` that of the other's:

- one knob: on both, own and cross differ by less than the margin, and all four exceed it; own exceeds by the margin
  what a direction of permuted labels does; and all directions together do not exceed own by the margin (alike effects
  of directions that each hold a part of several knobs are no one knob);
- distinct: on both, own exceeds cross by the margin; both crosses are below the margin;
- partly shared, claimed of a pair only where there are no other categories: on both, own exceeds cross by the margin; a
  cross exceeds it; and the first common direction does less than own by the margin on one of the two (two directions
  of one knob, each with content of its own category in it, would also differ, but that one direction would do for
  both; with more categories the first common direction may be that of others);
- no effect: all four are below the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Shaped
from scipy.special import betainc, ndtr

from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups
from probes.statistics.permutation import holm
from probes.statistics.tango import score, tango

Stopped = Bool[np.ndarray, " decliners"]
Claim = Literal["one_knob", "distinct", "partly_shared", "no_effect"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
CategoryVerdict = Literal["one_knob", "distinct", "partly_shared", "no_effect", "not_applicable", "inconclusive"]


@dataclass(frozen=True)
class Decliners:
    """What ablations do to one category's baseline decliners; all arrays are in the order of the decliners."""

    groups: Shaped[np.ndarray, " decliners"]
    ablated: Mapping[str, Stopped]  # by the category whose direction is ablated: its own and all others
    control: Stopped  # a direction of its own permuted labels
    common: tuple[Stopped, ...]  # the first 1, 2, … directions of the span of all categories' directions

    @cached_property
    def n(self) -> float:
        """The effective number of groups."""
        return effective_groups(self.groups)


@dataclass(frozen=True)
class PairVerdict:
    """The verdict on two categories, with the p of the claim after Holm's correction (NaN if inconclusive)."""

    between: tuple[str, str]
    verdict: CategoryVerdict
    p: float


@dataclass(frozen=True)
class CategoriesVerdict:
    """The verdict on all categories of one way of declining."""

    verdict: CategoryVerdict
    reason: str
    pairs: tuple[PairVerdict, ...]
    rank: int  # least number of directions beyond which no category gains
    settled: bool  # it is also shown that the whole span gains less than the margin beyond the rank


def judge_categories(measured: Mapping[str, Decliners], margin: float, alpha: float) -> CategoriesVerdict:
    """Judge the categories of one way of declining, two or more.

    Args:
        measured: the decliners of each category, by its name.
        margin: the least difference of two shares that matters.
        alpha: each one-sided statement is tested at alpha / 2.
    """
    names, level = sorted(measured), alpha / 2
    pairs = list(combinations(names, 2))
    p = {claim: np.array([_p_of(claim, measured, *pair, margin) for pair in pairs]) for claim in CLAIMS}
    if len(names) > 2:
        p["partly_shared"] = np.ones(len(pairs))
    rank, settled = rank_of(measured, margin, alpha)
    gap = max(_p_below(measured[x].ablated[x], measured[x].common[0], measured[x].n, margin) for x in names)
    if (p["one_knob"] <= level).all() and gap <= level:
        alike = tuple(PairVerdict(pair, "one_knob", float(p["one_knob"].max())) for pair in pairs)
        return CategoriesVerdict(
            "one_knob",
            "every ablation stops every category alike, and one direction does for all",
            alike,
            rank,
            settled,
        )
    judged = tuple(_pair(pair, {c: holm(p[c].tolist())[i] for c in CLAIMS}, level) for i, pair in enumerate(pairs))
    verdict, reason = _of_pairs(judged)
    if verdict == "inconclusive" and (p["one_knob"] <= level).all():
        reason = "every ablation stops every category alike, but no one direction for all of them is shown to"
    return CategoriesVerdict(verdict, reason, judged, rank, settled)


def rank_of(measured: Mapping[str, Decliners], margin: float, alpha: float) -> tuple[int, bool]:
    """Return the least number of common directions beyond which no category is shown to gain more than the margin.

    The whole span is compared with its first 1, 2, … directions; the numbers are tested in order and the first that no
    category rejects is the rank (Bonferroni over categories), so a rank above the true one is reported with a
    probability below alpha / 2. The rank is settled if each category's gain beyond it is shown to be below the margin.
    """
    level, most = alpha / 2, len(next(iter(measured.values())).common)

    def gains(k: int) -> bool:
        ps = [_p_above(one.common[-1], one.common[k - 1], one.n, margin) for one in measured.values()]
        return min(ps) <= level / len(ps)

    rank = next(k for k in range(1, most + 1) if k == most or not gains(k))
    beyond = [_p_below(one.common[-1], one.common[rank - 1], one.n, margin) for one in measured.values()]
    return rank, rank == most or max(beyond) <= level


def intervals_of(measured: Mapping[str, Decliners], a: str, b: str, alpha: float) -> dict[str, Estimate]:
    """Return the intervals behind a pair's verdict: four effects, and own minus other on each category."""
    intervals = {
        f"ablate {x} on {y}": _share(measured[y].ablated[x], measured[y].n, alpha) for x in (a, b) for y in (a, b)
    }
    for own, other in ((a, b), (b, a)):
        on = measured[own]
        intervals[f"own minus other on {own}"] = tango(on.ablated[own], on.ablated[other], on.n, alpha)
    return intervals


# -- claims ------------------------------------------------------------------------------------------------------------


def _p_of(claim: Claim, measured: Mapping[str, Decliners], a: str, b: str, margin: float) -> float:
    on, other = {a: measured[a], b: measured[b]}, {a: b, b: a}
    own = {x: on[x].ablated[x] for x in on}
    cross = {x: on[x].ablated[other[x]] for x in on}
    specific = max(_p_above(own[x], cross[x], on[x].n, margin) for x in on)
    match claim:
        case "one_knob":
            alike = max(
                max(_p_below(own[x], cross[x], on[x].n, margin), _p_below(cross[x], own[x], on[x].n, margin))
                for x in on
            )
            acts = max(_p_share_above(stopped[x], on[x].n, margin) for x in on for stopped in (own, cross))
            real = max(_p_above(own[x], on[x].control, on[x].n, margin) for x in on)
            whole = max(_p_below(on[x].common[-1], own[x], on[x].n, margin) for x in on)
            return max(alike, acts, real, whole)
        case "distinct":
            return max(specific, *(_p_share_below(cross[x], on[x].n, margin) for x in on))
        case "partly_shared":
            shared = min(_p_share_above(cross[x], on[x].n, margin) for x in on)
            several = min(_p_above(own[x], on[x].common[0], on[x].n, margin) for x in on)
            return min(1.0, max(specific, 2 * shared, 2 * several))  # the least of two: Bonferroni
        case "no_effect":
            return max(_p_share_below(stopped[x], on[x].n, margin) for x in on for stopped in (own, cross))


def _pair(pair: tuple[str, str], corrected: Mapping[Claim, float], level: float) -> PairVerdict:
    shown = [claim for claim in CLAIMS if corrected[claim] <= level]  # no two of the claims agree
    return (
        PairVerdict(pair, shown[0], float(corrected[shown[0]]))
        if shown
        else PairVerdict(pair, "inconclusive", float("nan"))
    )


def _of_pairs(judged: Sequence[PairVerdict]) -> tuple[CategoryVerdict, str]:
    verdicts = {pair.verdict for pair in judged}
    apart, shared = verdicts & {"distinct", "partly_shared"}, verdicts & {"one_knob", "partly_shared"}
    if verdicts == {"distinct"}:
        return "distinct", "ablating each category's direction stops its own declines and none of the others'"
    if verdicts == {"no_effect"}:
        return "no_effect", "no category's ablation stops more declines than the margin"
    if apart and shared:
        return "partly_shared", "some categories share a direction of declining, and not all do"
    open_pairs = [" and ".join(pair.between) for pair in judged if pair.verdict == "inconclusive"]
    if not open_pairs:
        return "inconclusive", "the pairs fit no pattern: see the matrix"
    more = f" and {len(open_pairs) - 3} more" if len(open_pairs) > 3 else ""
    return "inconclusive", f"undecided: {', '.join(open_pairs[:3])}{more}"


# -- one-sided tests ---------------------------------------------------------------------------------------------------


def _p_above(a: Stopped, b: Stopped, n: float, margin: float) -> float:
    """Return the p of "mean(a) - mean(b) exceeds the margin" (score test of a paired difference, Tango 1998)."""
    return float(ndtr(-score(float(np.mean(a & ~b)), float(np.mean(~a & b)), n, margin)))


def _p_below(a: Stopped, b: Stopped, n: float, margin: float) -> float:
    """Return the p of "mean(a) - mean(b) is below the margin"."""
    return float(ndtr(score(float(np.mean(a & ~b)), float(np.mean(~a & b)), n, margin)))


def _p_share_above(stopped: Stopped, n: float, margin: float) -> float:
    """Return the p of "the share exceeds the margin" (exact binomial, Clopper & Pearson 1934)."""
    hits = float(stopped.mean()) * n
    return 1.0 if hits <= 0 else float(betainc(hits, n - hits + 1, margin))


def _p_share_below(stopped: Stopped, n: float, margin: float) -> float:
    """Return the p of "the share is below the margin"."""
    hits = float(stopped.mean()) * n
    return 1.0 if hits >= n else float(1 - betainc(hits + 1, n - hits, margin))


def _share(stopped: Stopped, n: float, alpha: float) -> Estimate:
    return clopper_pearson(float(stopped.mean()) * n, n, alpha)
