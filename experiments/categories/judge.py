"""Verdicts on categories of one way of declining, judged without a model; the rules are in docs/categories.md.

Every claim is a conjunction of one-sided statements about shares of decliners that stop, tested at alpha / 2 each, and
claimed at the largest p of its parts (intersection-union, Berger 1982). Claims about named pairs are corrected
together, each kind of claim by itself (Holm 1979); that *all* pairs share one knob needs no correction. `own` is the
effect of a category's own ablation, `cross` that of the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Shaped
from scipy.special import betainc, ndtr

from experiments.categories.members import SETS, DeclineSet
from experiments.categories.results import (
    CategoryEffects,
    CategoryResults,
    CategoryVerdict,
    PairResult,
    SetEffects,
    SetResult,
    Tradeoff,
    TradeoffPoint,
)
from experiments.categories.tradeoff import CONFIDENT, STRENGTHS, WAYS
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Key, Outcomes, read_outcomes
from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups, tango, tango_score
from probes.statistics.permutation import holm
from scoring.actions import OPENED
from scoring.rates import grouped_rate

Stopped = Bool[np.ndarray, " decliners"]
Claim = Literal["one_knob", "distinct", "partly_shared", "no_effect"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)


@dataclass(frozen=True)
class Decliners:
    """What ablations do to one category's baseline decliners; all arrays are in the order of the decliners."""

    groups: Shaped[np.ndarray, " decliners"]
    ablated: Mapping[str, Stopped]  # by the category whose direction is ablated: its own and all others
    control: Stopped  # a direction of its own permuted labels
    common: tuple[Stopped, ...]  # the first 1, 2, … directions of the span of all categories' directions

    @cached_property
    def n(self) -> float:
        return effective_groups(self.groups)

    def share(self, stopped: Stopped, alpha: float) -> Estimate:
        return grouped_rate(stopped, self.groups, alpha)


def judge(inputs: RunInputs) -> None:
    """Write stages/categories.json."""
    measured, config = CategoryEffects.read(inputs.file("stages/category_effects.json")), inputs.config.dissociate
    path = inputs.file("outcomes.parquet/category_effects.parquet")
    outcomes = read_outcomes(path, [prompt.id for prompt in inputs.prompts])
    CategoryResults(
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        **{declines: judge_measured(inputs, declines, getattr(measured, declines), outcomes) for declines in SETS},
        places=measured.places,
        tradeoff=_judged_tradeoff(inputs, outcomes, measured.over_refusal.angles),
    ).write(inputs.file("stages/categories.json"))


def judge_measured(
    inputs: RunInputs, declines: DeclineSet, measured: SetEffects, outcomes: Mapping[Key, Outcomes]
) -> SetResult:
    """Judge the categories of one set of declines."""
    if not measured.categories:
        reason = "fewer than two categories have enough decliners"
        return SetResult(verdict="not_applicable", reason=reason, missing=measured.missing)
    config, decliners = inputs.config.dissociate, decliners_of(inputs, declines, measured.categories, outcomes)
    more = {name: getattr(measured, name) for name in ("missing", "write_directions", "read_directions")}
    judged = judge_categories(decliners, config.margin, config.alpha)
    return judged.model_copy(update=more | {"layers": tuple(fold.layer for fold in measured.folds)})


def decliners_of(
    inputs: RunInputs, declines: DeclineSet, categories: Sequence[str], outcomes: Mapping[Key, Outcomes]
) -> dict[str, Decliners]:
    """Return each category's decliners and what stops them."""

    def of_category(name: str) -> Decliners:
        rows = outcomes[declines, f"control {name}"].rows

        def stopped(intervention: str) -> Stopped:
            return outcomes[declines, intervention].among(rows).hits(OPENED)

        return Decliners(
            groups=inputs.corpus.groups_among(rows),
            ablated={other: stopped(f"ablate {other}") for other in categories},
            control=stopped(f"control {name}"),
            common=tuple(stopped(f"first {k + 1}") for k in range(len(categories))),
        )

    return {name: of_category(name) for name in categories}


def _judged_tradeoff(inputs: RunInputs, outcomes: Mapping[Key, Outcomes], angles: tuple[float, ...]) -> Tradeoff | None:
    config, corpus = inputs.config.dissociate, inputs.corpus

    def rate(of: Outcomes, hit: Bool[np.ndarray, " n"], benign: bool, alpha: float = config.alpha) -> Estimate:
        among = corpus.benign[of.rows] == benign
        return grouped_rate(hit[among], corpus.groups[of.rows[among]], alpha)

    tried = {(way, s): outcomes[key] for way in WAYS for s in STRENGTHS if (key := (way, f"{s:g}")) in outcomes}
    points, strict = [], config.alpha / max(len(tried), 1)  # Bonferroni: every point may hold
    for (way, strength), of in tried.items():
        opened = of.hits(OPENED)
        falls = rate(of, opened, True, strict).low > config.margin
        gone, lost = rate(of, opened, True), rate(of, opened, False)
        holds = falls and rate(of, opened, False, strict).high < config.margin
        shares = {"over_refusal_gone": gone, "harmful_refusal_lost": lost}
        points.append(TradeoffPoint(way=way, strength=strength, **shares, holds=holds))
    recognised = {}
    if (moved := tried.get(("trajectories", STRENGTHS[0]))) is not None:
        sure = moved.probability >= CONFIDENT
        recognised = {label: rate(moved, sure, label == "benign") for label in ("benign", "harmful")}
    return Tradeoff(points=tuple(points), angles=angles, recognised=recognised) if points else None


def judge_categories(measured: Mapping[str, Decliners], margin: float, alpha: float) -> SetResult:
    """Judge two or more categories of one way of declining; each one-sided statement is tested at alpha / 2."""
    names, level = sorted(measured), alpha / 2
    pairs = list(combinations(names, 2))
    p = {claim: np.array([_p_of(claim, measured, *pair, margin) for pair in pairs]) for claim in CLAIMS}
    if len(names) > 2:
        p["partly_shared"] = np.ones(len(pairs))
    alike = (p["one_knob"] <= level).all()
    gap = max(_p_below(measured[x].ablated[x], measured[x].common[0], measured[x].n, margin) for x in names)
    if alike and gap <= level:
        claims: list[tuple[CategoryVerdict, float | None]] = [("one_knob", float(p["one_knob"].max()))] * len(pairs)
        verdict, reason = "one_knob", "every ablation stops every category alike, and one direction does for all"
    else:
        corrected = {claim: holm(p[claim].tolist()) for claim in CLAIMS}
        claims = [_shown({claim: float(corrected[claim][i]) for claim in CLAIMS}, level) for i in range(len(pairs))]
        verdict, reason = _of_pairs(pairs, [claim for claim, _ in claims])
        if verdict == "inconclusive" and alike:
            reason = "every ablation stops every category alike, but no one direction for all of them is shown to"
    rank, settled = rank_of(measured, margin, alpha)
    return SetResult(
        verdict=verdict,
        reason=reason,
        matrix={a: {b: of.share(of.ablated[a], alpha) for b, of in measured.items()} for a in measured},
        controls={name: of.share(of.control, alpha) for name, of in measured.items()},
        common={name: tuple(of.share(stopped, alpha) for stopped in of.common) for name, of in measured.items()},
        pairs=tuple(
            PairResult(between=pair, verdict=claim, p=p, intervals=_intervals(measured, *pair, alpha))
            for pair, (claim, p) in zip(pairs, claims, strict=True)
        ),
        rank=rank,
        rank_settled=settled,
    )


def rank_of(measured: Mapping[str, Decliners], margin: float, alpha: float) -> tuple[int, bool]:
    """Return the least number of common directions beyond which no category gains the margin; whether that is shown.

    Numbers are tested in order; the first that no category rejects is the rank (Bonferroni over categories), so a rank
    above the true one is reported with a probability below alpha / 2.
    """
    level, most = alpha / 2, len(next(iter(measured.values())).common)

    def gains(k: int) -> bool:
        ps = [_p_above(one.common[-1], one.common[k - 1], one.n, margin) for one in measured.values()]
        return min(ps) <= level / len(ps)

    rank = next(k for k in range(1, most + 1) if k == most or not gains(k))
    beyond = [_p_below(one.common[-1], one.common[rank - 1], one.n, margin) for one in measured.values()]
    return rank, rank == most or max(beyond) <= level


def _intervals(measured: Mapping[str, Decliners], a: str, b: str, alpha: float) -> dict[str, Estimate]:
    """Return the intervals behind a pair's verdict: four effects, and own minus other on each category."""
    intervals = {}
    for x, y in product((a, b), repeat=2):
        of = measured[y]
        intervals[f"ablate {x} on {y}"] = clopper_pearson(float(of.ablated[x].mean()) * of.n, of.n, alpha)
    for own, other in ((a, b), (b, a)):
        on = measured[own]
        intervals[f"own minus other on {own}"] = tango(on.ablated[own], on.ablated[other], on.n, alpha)
    return intervals


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


def _shown(corrected: Mapping[Claim, float], level: float) -> tuple[CategoryVerdict, float | None]:
    """Return the claim that is shown, no two of which agree, and its p."""
    return next(((claim, p) for claim, p in corrected.items() if p <= level), ("inconclusive", None))


def _of_pairs(pairs: Sequence[tuple[str, str]], claims: Sequence[CategoryVerdict]) -> tuple[CategoryVerdict, str]:
    verdicts = set(claims)
    apart, shared = verdicts & {"distinct", "partly_shared"}, verdicts & {"one_knob", "partly_shared"}
    if verdicts == {"distinct"}:
        return "distinct", "ablating each category's direction stops its own declines and none of the others'"
    if verdicts == {"no_effect"}:
        return "no_effect", "no category's ablation stops more declines than the margin"
    if apart and shared:
        return "partly_shared", "some categories share a direction of declining, and not all do"
    open_pairs = [" and ".join(pair) for pair, claim in zip(pairs, claims, strict=True) if claim == "inconclusive"]
    if not open_pairs:
        return "inconclusive", "the pairs fit no pattern: see the matrix"
    more = f" and {len(open_pairs) - 3} more" if len(open_pairs) > 3 else ""
    return "inconclusive", f"undecided: {', '.join(open_pairs[:3])}{more}"


# one-sided p of "a share (or the difference a - b of two) is above (or below) the margin"


def _p_above(a: Stopped, b: Stopped, n: float, margin: float) -> float:
    """Score test of a paired difference (Tango 1998)."""
    return float(ndtr(-tango_score(float(np.mean(a & ~b)), float(np.mean(~a & b)), n, margin)))


def _p_below(a: Stopped, b: Stopped, n: float, margin: float) -> float:
    return float(ndtr(tango_score(float(np.mean(a & ~b)), float(np.mean(~a & b)), n, margin)))


def _p_share_above(stopped: Stopped, n: float, margin: float) -> float:
    """Exact binomial (Clopper & Pearson 1934)."""
    hits = float(stopped.mean()) * n
    return 1.0 if hits <= 0 else float(betainc(hits, n - hits + 1, margin))


def _p_share_below(stopped: Stopped, n: float, margin: float) -> float:
    hits = float(stopped.mean()) * n
    return 1.0 if hits >= n else float(1 - betainc(hits + 1, n - hits, margin))
