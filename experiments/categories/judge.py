"""Judges the categories of each way of declining from measured effects, without a model."""

from __future__ import annotations

import numpy as np

from experiments.categories.results import (
    STRENGTHS,
    WAYS,
    CategoryEffects,
    CategoryResults,
    PairResult,
    SetEffects,
    SetResult,
    Tradeoff,
    TradeoffOutcomes,
    TradeoffPoint,
    ablated_name,
    common_name,
    control_name,
    way_name,
)
from experiments.categories.verdict import Decliners, intervals_of, judge_categories
from experiments.run.inputs import RunInputs
from probes.statistics.intervals import Estimate, clopper_pearson, effective_groups


def judge(inputs: RunInputs) -> None:
    """Write stages/categories.json."""
    measured, config = CategoryEffects.read(inputs.file("stages/category_effects.json")), inputs.config.dissociate
    CategoryResults(
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        normative=judge_measured(inputs, measured.normative),
        epistemic=judge_measured(inputs, measured.epistemic),
        over_refusal=judge_measured(inputs, measured.over_refusal),
        places=measured.places,
        tradeoff=None if measured.tradeoff is None else _judged_tradeoff(inputs, measured.tradeoff),
    ).write(inputs.file("stages/categories.json"))


def judge_measured(inputs: RunInputs, measured: SetEffects) -> SetResult:
    """Judge the categories of one set of declines."""
    if not measured.outcomes:
        reason = "fewer than two categories have enough decliners"
        return SetResult(verdict="not_applicable", reason=reason, missing=measured.missing)
    config, of = inputs.config.dissociate, decliners_of(inputs, measured)
    judged = judge_categories(of, config.margin, config.alpha)

    def share(name: str, stopped: np.ndarray) -> Estimate:
        n, groups = of[name].n, of[name].groups
        return clopper_pearson(float(stopped.mean()) * n, n, config.alpha).counted(len(groups), groups)

    return SetResult(
        verdict=judged.verdict,
        reason=judged.reason,
        missing=measured.missing,
        layers=tuple(fold.layer for fold in measured.folds),
        matrix={a: {b: share(b, of[b].ablated[a]) for b in of} for a in of},
        controls={name: share(name, one.control) for name, one in of.items()},
        common={name: tuple(share(name, stopped) for stopped in one.common) for name, one in of.items()},
        pairs=tuple(
            PairResult(
                between=pair.between,
                verdict=pair.verdict,
                p=None if np.isnan(pair.p) else pair.p,
                intervals={k: i for k, i in intervals_of(of, *pair.between, config.alpha).items()},
            )
            for pair in judged.pairs
        ),
        rank=judged.rank,
        rank_settled=judged.settled,
        write_directions=measured.write_directions,
        read_directions=measured.read_directions,
    )


def _judged_tradeoff(inputs: RunInputs, measured: TradeoffOutcomes) -> Tradeoff:
    config, corpus = inputs.config.dissociate, inputs.corpus

    def share(rows: tuple[int, ...], done: tuple[bool, ...], alpha: float) -> Estimate:
        n = effective_groups(corpus.groups_among(np.array(rows, dtype=int)))
        return clopper_pearson(float(np.mean(done)) * n, n, alpha)

    def answered(rows: tuple[int, ...], done: tuple[bool, ...]) -> Estimate:
        return share(rows, done, config.alpha).counted(len(rows), corpus.groups_among(np.array(rows, dtype=int)))

    points, strict = [], config.alpha / len(measured.benign_answered)  # Bonferroni: every point may hold
    for way in WAYS:
        for strength in STRENGTHS:
            name = way_name(way, strength)
            if name not in measured.benign_answered:
                continue
            gone = answered(measured.benign, measured.benign_answered[name])
            lost = answered(measured.harmful, measured.harmful_answered[name])
            holds = (
                share(measured.benign, measured.benign_answered[name], strict).low > config.margin
                and share(measured.harmful, measured.harmful_answered[name], strict).high < config.margin
            )
            points.append(
                TradeoffPoint(
                    way=way, strength=strength, over_refusal_gone=gone, harmful_refusal_lost=lost, holds=holds
                )
            )
    recognised = {
        label: answered(rows, done)
        for label, rows, done in (
            ("benign", measured.benign, measured.benign_recognised),
            ("harmful", measured.harmful, measured.harmful_recognised),
        )
        if done
    }
    return Tradeoff(points=tuple(points), angles=measured.angles, recognised=recognised)


def decliners_of(inputs: RunInputs, measured: SetEffects) -> dict[str, Decliners]:
    """Return each category's decliners and what stops them."""
    names = list(measured.outcomes)

    def of(name: str) -> Decliners:
        one = measured.outcomes[name]
        stopped = {key: np.array(values, dtype=bool) for key, values in one.stopped.items()}
        return Decliners(
            groups=inputs.corpus.groups_among(np.array(one.rows, dtype=int)),
            ablated={other: stopped[ablated_name(other)] for other in names},
            control=stopped[control_name(name)],
            common=tuple(stopped[common_name(k + 1)] for k in range(len(names))),
        )

    return {name: of(name) for name in names}
