"""Judges measured effects without a model: the matrix, effects with intervals and p values, the verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Int

from experiments.dissociation.effects import Effect, EffectKey, effect_interval, other_kind
from experiments.dissociation.measured_effects import MeasuredEffects, NullEffects, TriedVariant, array
from experiments.dissociation.results import Dissociation, EffectRecord, NullRecord, VariantRecord
from experiments.dissociation.verdict import corrected_p, judge_dissociation
from experiments.rank.results import Ranks
from experiments.run.behaviour import ACTION_OF, DECLINES, KINDS, Kind
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, contrast, read_outcomes
from probes.statistics.intervals import Estimate, grouped_mean
from scoring.actions import ANSWERED, OPENED
from scoring.rates import grouped_rate

TURNED_INTO: dict[Kind, str] = {"normative": "abstained", "epistemic": "refused"}
MANY_TURNED = 0.2  # share of declines that turn into the other kind, from which the verdict's sentence says so


def dissociate(inputs: RunInputs) -> None:
    """Judge stages/effects.json and write stages/dissociate.json."""
    measured, outcomes = read_measured(inputs)
    rank = Ranks.read(inputs.file("stages/rank.json")) if inputs.config.dissociate.rank != 1 else None
    result = judge_effects(inputs, measured, outcomes).model_copy(update={"rank": rank})
    result.write(inputs.file("stages/dissociate.json"))


def read_measured(inputs: RunInputs) -> tuple[MeasuredEffects, dict[Key, Outcomes]]:
    """Read stages/effects.json and the outcomes beside it."""
    measured = MeasuredEffects.read(inputs.file("stages/effects.json"))
    return measured, read_outcomes(inputs.file("outcomes.parquet/effects.parquet"), [p.id for p in inputs.prompts])


def judge_effects(inputs: RunInputs, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes]) -> Dissociation:
    """Judge effects at the configured margin and level."""
    config, corpus = inputs.config.dissociate, inputs.corpus
    decliners = {kind: inputs.behaviour.decliners(kind, "test") for kind in KINDS if kind not in measured.absent}
    testable = {kind: rows for kind, rows in decliners.items() if len(rows)}
    effects: dict[EffectKey, Effect] = {
        (kind, b): _effect(measured, outcomes, (kind, b), rows)
        for kind in measured.directions
        for b, rows in testable.items()
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
    more = _turned(measured, outcomes, testable)
    if effects:
        more += (f"the directions were fitted and set at {inputs.config.extract.site}",)
    return Dissociation(
        verdict=verdict.verdict,
        reasons=verdict.reasons + more,
        margin=config.margin,
        alpha=config.alpha,
        variant=config.variant.name,
        power=verdict.power,
        contrasts=dict(verdict.contrasts),
        matrix=_matrix(inputs, outcomes),
        effects=_effect_records(inputs, measured, outcomes, effects, n_groups),
        additions=_additions(inputs, measured, outcomes, config.alpha),
        variants=tuple(_variant_record(inputs, outcomes, tried) for tried in measured.variants),
        dependence=measured.dependence,
        reads=dict(measured.reads),
        side_effects=measured.side_effects,
    )


# -- effects -----------------------------------------------------------------------------------------------------------


def _effect(
    measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes], key: EffectKey, rows: Int[np.ndarray, " rows"]
) -> Effect:
    stopped = outcomes[PLAIN, f"ablate_{key[0]}"].among(rows).hits(OPENED)
    null = measured.null_of(*key)
    if null is None:
        return Effect(stopped, None)
    labellings = float("inf") if null.n_labellings is None else null.n_labellings
    return Effect(stopped, None if np.isnan(null.p) else null.p, len(null.drawn), labellings)


def _effect_records(
    inputs: RunInputs,
    measured: MeasuredEffects,
    outcomes: Mapping[Key, Outcomes],
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
) -> tuple[EffectRecord, ...]:
    """Return every effect with its interval, its null, and the fall of the onset log-odds over groups."""
    alpha, corrected = inputs.config.dissociate.alpha, corrected_p(effects)
    onset_rows = decliners_with_onset(inputs, outcomes)

    def onset(ablated: Kind, rows: Int[np.ndarray, " rows"]) -> Estimate:
        before, after = (outcomes[PLAIN, name].among(rows).onset for name in (NOTHING, f"ablate_{ablated}"))
        finite = np.isfinite(before) & np.isfinite(after)
        fall = np.where(finite, np.where(finite, before, 0) - np.where(finite, after, 0), np.nan)
        return grouped_mean(fall, inputs.corpus.groups_among(rows), alpha).counted(len(rows))

    return tuple(
        EffectRecord.of(
            effect_interval(effect, n_groups[b], alpha).counted(len(effect.stopped)),
            ablated=k,
            behaviour=b,
            p_corrected=corrected.get((k, b)),
            p_null=effect.p_null,
            onset=onset(k, onset_rows[b]) if b in onset_rows else None,
            null=None if (null := measured.null_of(k, b)) is None else _null_record(null),
        )
        for (k, b), effect in effects.items()
    )


def decliners_with_onset(inputs: RunInputs, outcomes: Mapping[Key, Outcomes]) -> dict[Kind, Int[np.ndarray, " rows"]]:
    """Return the decliners of each behaviour on which onset log-odds are measured."""
    plain = outcomes[PLAIN, NOTHING]
    rows = plain.rows[~np.isnan(plain.onset)]
    return {b: of for b in KINDS if len(of := rows[inputs.behaviour.actions[rows] == ACTION_OF[b]])}


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


def _matrix(inputs: RunInputs, outcomes: Mapping[Key, Outcomes]) -> dict[str, dict[str, Estimate]]:
    """Rows are interventions; columns shares of test prompts, with intervals and n.

    The first columns are the behaviours of all prompts of a label, the others what baseline declines become: answered
    (`OPENED`), the other way of declining, or neither (another question's answer, no answer, unjudged).
    """
    corpus, test = inputs.corpus, inputs.corpus.within("test")
    answered_benign = inputs.behaviour.answered_benign("test")
    columns: dict[str, tuple[np.ndarray, Collection[str]]] = {
        "refusal_on_harmful": (np.flatnonzero(corpus.harmful & test), {"refuse"}),
        "abstention_on_uncertain": (np.flatnonzero(corpus.uncertain & test), {"abstain"}),
        "answering_on_benign": (np.flatnonzero(corpus.benign & test), ANSWERED),
        "refusal_on_answered_benign": (answered_benign, {"refuse"}),
        "abstention_on_answered_benign": (answered_benign, {"abstain"}),
    }

    def row(of: Outcomes) -> dict[str, Estimate]:
        shares: dict[str, Estimate] = {}
        for column, (rows, counted) in columns.items():
            now = of.among(rows)
            judged = rows[now.judged]
            shares[column] = grouped_rate(now.hits(counted)[now.judged], corpus.groups_among(judged))
        return shares | _becoming(inputs, of)

    return {name: row(of) for (condition, name), of in outcomes.items() if condition == PLAIN}


def _becoming(inputs: RunInputs, outcomes: Outcomes) -> dict[str, Estimate]:
    """Return what the baseline decliners of each behaviour do under an intervention, as shares of all of them."""
    shares: dict[str, Estimate] = {}
    for kind, plural in DECLINES.items():
        rows = inputs.behaviour.decliners(kind, "test")
        now, groups = outcomes.among(rows), inputs.corpus.groups_among(rows)
        opened, turned, still = (now.hits(c) for c in (OPENED, {ACTION_OF[other_kind(kind)]}, {ACTION_OF[kind]}))
        became = {"answered": opened, TURNED_INTO[kind]: turned, "neither": ~(opened | turned | still)}
        shares |= {f"{plural}_{what}": grouped_rate(hit, groups) for what, hit in became.items()}
    return shares


def _turned(
    measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes], decliners: Mapping[Kind, np.ndarray]
) -> tuple[str, ...]:
    """Return a reason for each ablation that turns many declines of one kind into the other."""
    lines = []
    for ablated in measured.directions:
        for b, rows in decliners.items():
            turned = outcomes[PLAIN, f"ablate_{ablated}"].among(rows).hits({ACTION_OF[other_kind(b)]}).mean()
            if turned >= MANY_TURNED:
                into = DECLINES[other_kind(b)]
                lines.append(f"ablating the {ablated} direction turns {turned:.0%} of the {DECLINES[b]} into {into}")
    return tuple(lines)


def _additions(
    inputs: RunInputs, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes], alpha: float
) -> dict[str, Estimate] | None:
    """Return how much more often adding the own direction induces each way of declining than adding the other's does.

    Measured on benign test prompts that were answered; paired differences of shares.
    """
    if len(measured.directions) < len(KINDS):
        return None
    rows = inputs.behaviour.answered_benign("test")
    added, groups = (
        {kind: outcomes[PLAIN, f"add_{kind}"].among(rows) for kind in KINDS},
        inputs.corpus.groups_among(rows),
    )
    return {
        f"own_minus_other_{ACTION_OF[own]}": contrast(
            added[own], added[other_kind(own)], {ACTION_OF[own]}, groups, alpha / len(KINDS)
        )
        for own in KINDS
    }


def _variant_record(inputs: RunInputs, outcomes: Mapping[Key, Outcomes], tried: TriedVariant) -> VariantRecord:
    alpha, of = inputs.config.dissociate.alpha, outcomes.get((tried.variant, f"ablate_{tried.ablated}"))
    decliners = decliners_with_onset(inputs, outcomes)

    def share_of(rows: Int[np.ndarray, " rows"], counted: Collection[str]) -> Estimate | None:
        """Return None if there are no prompts; unjudged ones are no hits."""
        if of is None or not len(rows):
            return None
        return grouped_rate(of.among(rows).hits(counted), inputs.corpus.groups_among(rows), alpha)

    benign = (
        np.zeros(0, dtype=int)
        if of is None
        else of.rows[inputs.corpus.benign[of.rows] & inputs.behaviour.answered[of.rows]]
    )
    return VariantRecord(
        ablated=tried.ablated,
        variant=tried.variant,
        stopped={b: share_of(decliners.get(b, benign[:0]), OPENED) for b in tried.onset_effect},
        onset_effect=dict(tried.onset_effect),
        benign_answered=share_of(benign, ANSWERED),
    )
