"""Judges measured effects without a model: the matrix, effects with intervals and p values, the verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Int

from experiments.dissociation.effects import (
    Effect,
    EffectKey,
    effect_interval,
    onset_effect_interval,
    other_kind,
    stopped_among,
)
from experiments.dissociation.measured_effects import (
    MeasuredEffects,
    NullEffects,
    OnsetLogOdds,
    VariantOutcomes,
    array,
    null_name,
)
from experiments.dissociation.results import Dissociation, EffectRecord, NullRecord, VariantRecord
from experiments.dissociation.verdict import corrected_p, judge_dissociation
from experiments.rank.results import Ranks
from experiments.run.behaviour import ACTION_OF, DECLINES, KINDS, Kind
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from probes.statistics.intervals import Estimate
from probes.statistics.tango import tango
from scoring.actions import ANSWERED
from scoring.rates import grouped_rate

TURNED_INTO: dict[Kind, str] = {"normative": "abstained", "epistemic": "refused"}
MANY_TURNED = 0.2  # share of declines that turn into the other kind, from which the verdict's sentence says so


def dissociate(inputs: RunInputs) -> None:
    """Judge stages/effects.json and write stages/dissociate.json."""
    measured = MeasuredEffects.read(inputs.file("stages/effects.json"))
    rank = Ranks.read(inputs.file("stages/rank.json")) if inputs.config.dissociate.rank != 1 else None
    found = judge_effects(inputs, measured).model_copy(update={"rank": rank})
    found.write(inputs.file("stages/dissociate.json"))


def judge_effects(inputs: RunInputs, measured: MeasuredEffects) -> Dissociation:
    """Judge effects at the configured margin and level."""
    config, corpus = inputs.config.dissociate, inputs.corpus
    decliners = {kind: inputs.behaviour.decliners(kind, "test") for kind in KINDS if kind not in measured.absent}
    testable = {kind: rows for kind, rows in decliners.items() if len(rows)}
    effects: dict[EffectKey, Effect] = {
        (kind, b): _effect(measured, (kind, b), rows) for kind in measured.directions for b, rows in testable.items()
    }
    n_groups = {b: corpus.effective_groups(rows) for b, rows in testable.items()}
    nonlinear = [kind for kind, read in measured.reads.items() if read.only_products]
    verdict = judge_dissociation(
        effects,
        n_groups,
        measured.absent,
        measured.unsound,
        nonlinear,
        weak=measured.weak,
        margin=config.margin,
        alpha=config.alpha,
    )
    more = _turned(measured, testable)
    if effects:
        more += (f"the directions were fitted and set at {inputs.config.extract.site}",)
    intervals = {(k, b): effect_interval(effect, n_groups[b], config.alpha) for (k, b), effect in effects.items()}
    return Dissociation(
        verdict=verdict.verdict,
        reasons=verdict.reasons + more,
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        power=verdict.power,
        contrasts={name: interval for name, interval in verdict.contrasts.items()},
        matrix=_matrix(inputs, measured),
        effects=_effect_records(effects, intervals, _onset_effects(corpus, measured.onset, config.alpha)),
        additions=_additions(inputs, measured, config.alpha),
        null=None if measured.null is None else {name: _null_record(null) for name, null in measured.null.items()},
        variants=tuple(_variant_record(corpus, measured, tried, config.alpha) for tried in measured.variants),
        dependence=measured.dependence,
        reads=dict(measured.reads),
        side_effects=measured.side_effects,
    )


# -- effects -----------------------------------------------------------------------------------------------------------


def _effect(measured: MeasuredEffects, key: EffectKey, rows: np.ndarray) -> Effect:
    stopped = stopped_among(measured.actions_under(f"ablate_{key[0]}", rows))
    null = (measured.null or {}).get(null_name(*key))
    if null is None:
        return Effect(stopped, None)
    labellings = float("inf") if null.n_labellings is None else null.n_labellings
    return Effect(stopped, None if np.isnan(null.p) else null.p, len(null.drawn), labellings)


def _onset_effects(corpus: Corpus, onset: Mapping[Kind, OnsetLogOdds], alpha: float) -> dict[EffectKey, Estimate]:
    """Return each effect in log-odds, with its interval over groups."""
    found: dict[EffectKey, Estimate] = {}
    for b, scores in onset.items():
        groups = corpus.groups_among(np.array(scores.rows))
        for kind, after in scores.after.items():
            interval = onset_effect_interval(array(scores.before), array(after), groups, alpha)
            found[kind, b] = interval.counted(len(groups))
    return found


def _effect_records(
    effects: Mapping[EffectKey, Effect], intervals: Mapping[EffectKey, Estimate], onsets: Mapping[EffectKey, Estimate]
) -> dict[str, EffectRecord]:
    corrected = corrected_p(effects)
    return {
        f"ablate_{k}_on_{b}": EffectRecord.of(
            intervals[k, b].counted(len(effect.stopped)),
            p_null=effect.p_null,
            p_corrected=corrected.get((k, b)),
            onset=onsets.get((k, b)),
        )
        for (k, b), effect in effects.items()
    }


def _null_record(null: NullEffects) -> NullRecord:
    highest = float(np.quantile(array(null.drawn), 0.95))
    return NullRecord(
        onset_effect=null.observed,
        null_95th_percentile=highest if np.isfinite(highest) else None,
        p=null.p,
        n=len(null.drawn),
        n_labellings=null.n_labellings,
        drawn=tuple(None if value is None else round(value, 4) for value in null.drawn),
        stopped_by_generation=null.generated,
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def _matrix(inputs: RunInputs, measured: MeasuredEffects) -> dict[str, dict[str, Estimate]]:
    """Rows are interventions; columns shares of test prompts, with intervals and n.

    The first columns are the behaviours of all prompts of a label, the others what baseline declines become: answered
    (as `stopped_among`), the other way of declining, or neither (another question's answer, no answer, unjudged).
    """
    corpus, test = inputs.corpus, inputs.corpus.within("test")
    answered_benign = inputs.behaviour.answered_benign("test")
    refused, abstained = frozenset({"refuse"}), frozenset({"abstain"})
    columns: dict[str, tuple[np.ndarray, frozenset[str]]] = {
        "refusal_on_harmful": (np.flatnonzero(corpus.harmful & test), refused),
        "abstention_on_uncertain": (np.flatnonzero(corpus.uncertain & test), abstained),
        "answering_on_benign": (np.flatnonzero(corpus.benign & test), frozenset(ANSWERED)),
        "refusal_on_answered_benign": (answered_benign, refused),
        "abstention_on_answered_benign": (answered_benign, abstained),
    }
    return {
        name: {
            column: _judged_share(corpus, measured.actions_under(name, rows), rows, counted)
            for column, (rows, counted) in columns.items()
        }
        | _becoming(inputs, measured, name)
        for name in measured.actions
    }


def _becoming(inputs: RunInputs, measured: MeasuredEffects, name: str) -> dict[str, Estimate]:
    """Return what the baseline decliners of each behaviour do under an intervention, as shares of all of them."""
    found: dict[str, Estimate] = {}
    for kind, plural in DECLINES.items():
        rows = inputs.behaviour.decliners(kind, "test")
        did, groups = measured.actions_under(name, rows), inputs.corpus.groups_among(rows)
        opened, turned, still = stopped_among(did), did == ACTION_OF[other_kind(kind)], did == ACTION_OF[kind]
        outcomes = {"answered": opened, TURNED_INTO[kind]: turned, "neither": ~(opened | turned | still)}
        for what, hit in outcomes.items():
            found[f"{plural}_{what}"] = grouped_rate(hit, groups).counted(len(rows))
    return found


def _turned(measured: MeasuredEffects, decliners: Mapping[Kind, np.ndarray]) -> tuple[str, ...]:
    """Return a reason for each ablation that turns many declines of one kind into the other."""
    lines = []
    for ablated in measured.directions:
        for b, rows in decliners.items():
            share = float((measured.actions_under(f"ablate_{ablated}", rows) == ACTION_OF[other_kind(b)]).mean())
            if share >= MANY_TURNED:
                into = DECLINES[other_kind(b)]
                lines.append(f"ablating the {ablated} direction turns {share:.0%} of the {DECLINES[b]} into {into}")
    return tuple(lines)


def _judged_share(corpus: Corpus, did: np.ndarray, rows: np.ndarray, counted: frozenset[str]) -> Estimate:
    judged = np.array([action is not None for action in did], dtype=bool)
    hit = np.array([action in counted for action in did[judged]], dtype=bool)
    return grouped_rate(hit, corpus.groups_among(rows[judged])).counted(int(judged.sum()))


def _additions(inputs: RunInputs, measured: MeasuredEffects, alpha: float) -> dict[str, Estimate] | None:
    """Return how much more often adding the own direction induces each way of declining than adding the other's does.

    Measured on benign test prompts that were answered; paired differences of shares.
    """
    if len(measured.directions) < len(KINDS):
        return None
    rows = inputs.behaviour.answered_benign("test")
    n, found = inputs.corpus.effective_groups(rows), {}
    for own, other in (KINDS, KINDS[::-1]):
        mine, others = (measured.actions_under(f"add_{kind}", rows) == ACTION_OF[own] for kind in (own, other))
        found[f"own_minus_other_{ACTION_OF[own]}"] = tango(mine, others, n, alpha / len(KINDS)).counted(len(rows))
    return found


def _variant_record(corpus: Corpus, measured: MeasuredEffects, tried: VariantOutcomes, alpha: float) -> VariantRecord:
    return VariantRecord(
        ablated=tried.ablated,
        variant=tried.variant,
        stopped={
            b: _share(corpus, np.array(hit, dtype=bool), np.array(measured.onset[b].rows, dtype=int), alpha)
            for b, hit in tried.stopped.items()
        },
        onset_effect=dict(tried.onset_effect),
        benign_answered=_share(
            corpus, np.array(tried.benign_answered, dtype=bool), np.array(measured.benign, dtype=int), alpha
        ),
    )


def _share(
    corpus: Corpus, hit: Bool[np.ndarray, " rows"], rows: Int[np.ndarray, " rows"], alpha: float
) -> Estimate | None:
    """Return the share of hits among some prompts, None if there are no prompts; unjudged ones are no hits."""
    return grouped_rate(hit, corpus.groups_among(rows), alpha).counted(len(rows)) if len(rows) else None
