"""Judges measured effects without a model: the matrix, effects with intervals and p values, the verdict, open gates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product

import numpy as np
from jaxtyping import Int

from experiments.dissociation.applicability import looked_at, looks, missing_direction
from experiments.dissociation.elicited_judge import judge_elicited
from experiments.dissociation.results import (
    EVERYWHERE,
    FIXED,
    TURNED,
    Dissociation,
    EffectRecord,
    FixedThought,
    Looks,
    MeasuredEffects,
    MeasuredElicited,
    OpenedGate,
    OpenedGates,
    OpenedLabel,
    VariantRecord,
)
from experiments.dissociation.verdict import MANY_TURNED, TURNS, Effect, Verdict, corrected_p, judge_dissociation
from experiments.dissociation.verdict_rules import EFFECT_KEYS, EffectKey, other_kind
from experiments.rank.results import Ranks
from experiments.run.behaviour import ACTION_OF, DECLINES, KINDS, Kind
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, read_outcomes, share
from experiments.run.tested import hits_among, judged_among, sample_of
from experiments.side_effects.judge import judge_side_effects
from probes.statistics.intervals import Estimate, grouped_mean
from probes.statistics.sequential import NULL_SPENDING, SPENDING, look_level
from scoring.actions import ANSWERED, DECLINED, OPENED
from scoring.rates import grouped_rate
from steering.ablation_variant import VARIANTS

BY_REASON = "refusals are here all declines of harmful prompts, abstentions all of uncertain ones, however worded"
Rows = Int[np.ndarray, " rows"]
Matrix = Mapping[str, Mapping[str, Estimate]]


def dissociate(inputs: RunInputs) -> None:
    """Judge stages/effects.json and write stages/dissociate.json; what was tested is one more look."""
    rank = Ranks.read(inputs.file("stages/rank.json")) if inputs.config.dissociate.rank != 1 else None
    measured, outcomes = _read_measured(inputs)
    result = judge_effects(inputs, measured, outcomes).model_copy(update={"rank": rank})
    result = _with_elicited(inputs, result, measured, outcomes)
    result.write(inputs.file("stages/dissociate.json"))
    if result.verdict != "not_applicable":
        Looks(of=looked_at(inputs), shares=result.looks).write(inputs.file("looks.json"))


def _with_elicited(
    inputs: RunInputs, result: Dissociation, plain: MeasuredEffects, outcomes: Mapping[Key, Outcomes]
) -> Dissociation:
    """Add what is shown of elicited abstentions; it is the verdict where the plain model's behaviour gives none."""
    path = inputs.file("stages/elicited.json")
    if not path.is_file():  # elicit.when is never
        return result
    measured, more = MeasuredElicited.read(path), dict[Key, Outcomes]()
    if not measured.reason:
        more = read_outcomes(inputs.file("outcomes.parquet/elicited.parquet"), [p.id for p in inputs.prompts])
    assert result.level is not None
    assert result.null_level is not None
    elicited = judge_elicited(inputs, plain, measured, {**outcomes, **more}, result.level, result.null_level)
    if result.verdict != "not_applicable" or elicited.verdict == "not_applicable":
        return result.model_copy(update={"elicited": elicited})
    plainly = [f"the plain model: {reason}" for reason in result.reasons[:1]]
    update = {"reasons": (*elicited.reasons, *plainly), "contrasts": elicited.contrasts, "power": elicited.power}
    given = {"verdict": elicited.verdict, "basis": "elicited", "elicited": elicited}
    return result.model_copy(update=update | given)


def _read_measured(inputs: RunInputs) -> tuple[MeasuredEffects, dict[Key, Outcomes]]:
    measured = MeasuredEffects.read(inputs.file("stages/effects.json"))
    return measured, read_outcomes(inputs.file("outcomes.parquet/effects.parquet"), [p.id for p in inputs.prompts])


def judge_effects(inputs: RunInputs, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes]) -> Dissociation:
    """Judge effects at the configured margin, and at the level that the looks so far leave of the configured one."""
    config, every_look = inputs.config.dissociate, looks(inputs)
    level, null_level = (look_level(every_look, config.alpha, power) for power in (SPENDING, NULL_SPENDING))
    decliners = {
        kind: inputs.behaviour.decliners(kind, *measured.parts) for kind in KINDS if kind not in measured.absent
    }
    testable = {kind: rows for kind, rows in decliners.items() if len(rows)}
    matrix, onset_rows = _matrix(inputs, outcomes), _decliners_with_onset(inputs, outcomes)
    likely = [set(of.rows.tolist()) for (condition, _), of in outcomes.items() if condition == FIXED]
    kept_rows = {b: own for b, of in onset_rows.items() if likely and len(own := of[np.isin(of, [*likely[0]])])}
    effects: dict[EffectKey, Effect] = {}
    fixed: dict[EffectKey, Effect] = {}
    for ablated, (b, rows) in product(measured.directions, testable.items()):
        of, null = outcomes[PLAIN, f"ablate_{ablated}"].among(rows), measured.null.get(ablated, {}).get(b)
        effects[ablated, b] = Effect.of(of, null, inputs.corpus.groups_among(rows))
        if b in kept_rows:
            kept, null = outcomes[FIXED, f"ablate_{ablated}"], measured.fixed_null.get(ablated, {}).get(b)
            fixed[ablated, b] = Effect.of(kept.among(kept_rows[b]), null, inputs.corpus.groups_among(kept_rows[b]))
    n_groups = {b: inputs.corpus.independent_groups(rows) for b, rows in testable.items()}

    def judged(of: Mapping[EffectKey, Effect], n: Mapping[Kind, int]) -> Verdict:
        return judge_dissociation(
            of,
            n,
            measured.absent,
            measured.unsound,
            [kind for kind, read in measured.reads.items() if read.only_products],
            weak=measured.weak,
            margin=config.margin,
            alpha=level,
            null_alpha=null_level,
        )

    verdict, basis = judged(effects, n_groups), inputs.behaviour.basis
    if inputs.thinks and basis == "wording":
        basis = "free_thought"
    fitted_at = (f"the directions were fitted and set at {inputs.config.extract.site}",) if effects else ()
    tried = product(measured.directions, (*(v.name for v in VARIANTS), EVERYWHERE))
    return Dissociation(
        verdict=verdict.verdict,
        basis=basis,
        reasons=(
            *verdict.reasons,
            *([BY_REASON] if inputs.behaviour.basis == "reason" else []),
            *_turned(measured.directions, list(testable), matrix),
            *fitted_at,
            *(_look(level, null_level, every_look, config.alpha) if effects else ()),
        ),
        margin=config.margin,
        alpha=config.alpha,
        looks=every_look,
        level=level,
        null_level=null_level,
        variant=config.variant.name,
        power=verdict.power,
        contrasts=dict(verdict.contrasts),
        matrix=matrix,
        effects=_effect_records(inputs, measured, outcomes, effects, n_groups, onset_rows, level),
        additions=_additions(inputs, measured, outcomes, level),
        variants=tuple(
            _variant(inputs, outcomes, kind, name, onset_rows, level)
            for kind, name in tried
            if (name, f"ablate_{kind}") in outcomes
        ),
        dependence=measured.dependence,
        reads=dict(measured.reads),
        side_effects=judge_side_effects(inputs, measured.side_effects, outcomes),
        fixed_thought=_fixed_thought(inputs, measured, fixed, kept_rows, judged, level),
    )


def _fixed_thought(
    inputs: RunInputs,
    measured: MeasuredEffects,
    effects: Mapping[EffectKey, Effect],
    rows: Mapping[Kind, Rows],
    judged: Callable[[Mapping[EffectKey, Effect], Mapping[Kind, int]], Verdict],
    level: float,
) -> FixedThought | None:
    if not effects or (len(effects) < len(EFFECT_KEYS) and not measured.absent):  # no decliner of a kind is likely to
        return None
    n_groups = {b: inputs.corpus.independent_groups(of) for b, of in rows.items()}
    verdict = judged(effects, n_groups)
    records = (
        EffectRecord.of(
            effect.interval(n_groups[b], level).counted(len(effect.stopped)),
            n_groups=n_groups[b],
            ablated=k,
            behaviour=b,
            p_null=effect.p_null,
        )
        for (k, b), effect in effects.items()
    )
    return FixedThought(
        verdict=verdict.verdict, reasons=verdict.reasons, effects=tuple(records), carried=measured.carried
    )


def _look(level: float, null_level: float, looks: Sequence[float], alpha: float) -> tuple[str, ...]:
    """Return what a look at a part of the prompts, or after another one, means for the level."""
    if level > alpha - 1e-6:
        return ()
    seen = f"look {len(looks)}, with {looks[-1]:.0%} of the groups of harmful and uncertain prompts answered"
    at = f"intervals are at {level:.3f} and p-values at {null_level:.3f}, so that all looks together are at {alpha:g}"
    return (f"{seen}: {at}",)


# -- effects -----------------------------------------------------------------------------------------------------------


def _effect_records(
    inputs: RunInputs,
    measured: MeasuredEffects,
    outcomes: Mapping[Key, Outcomes],
    effects: Mapping[EffectKey, Effect],
    n_groups: Mapping[Kind, float],
    onset_rows: Mapping[Kind, Rows],
    alpha: float,
) -> tuple[EffectRecord, ...]:
    """Return every effect with its interval, its null, and the fall of the onset log-odds over groups."""
    corrected = corrected_p(effects)

    def onset(ablated: Kind, rows: Rows) -> Estimate:
        fall = _fall(outcomes, (PLAIN, f"ablate_{ablated}"), rows)
        return grouped_mean(fall, inputs.corpus.groups_among(rows), alpha).counted(len(rows))

    return tuple(
        EffectRecord.of(
            effect.interval(n_groups[b], alpha).counted(len(effect.stopped)),
            n_groups=n_groups[b],
            ablated=k,
            behaviour=b,
            p_corrected=corrected.get((k, b)),
            p_null=effect.p_null,
            onset=onset(k, onset_rows[b]) if b in onset_rows else None,
            null=measured.null.get(k, {}).get(b),
        )
        for (k, b), effect in effects.items()
    )


def _fall(outcomes: Mapping[Key, Outcomes], key: Key, rows: Rows) -> np.ndarray:
    """Return the fall of each decliner's onset log-odds, nats; NaN where it is not measured or not finite."""
    onsets = [outcomes[name].among(rows).onset for name in ((PLAIN, NOTHING), key)]
    before, after = (np.where(np.isfinite(onset), onset, np.nan) for onset in onsets)
    fall: np.ndarray = before - after
    return fall


def _decliners_with_onset(inputs: RunInputs, outcomes: Mapping[Key, Outcomes]) -> dict[Kind, Rows]:
    plain = outcomes[PLAIN, NOTHING]
    rows = plain.rows[~np.isnan(plain.onset)]
    return {b: of for b in KINDS if len(of := rows[inputs.behaviour.declined(b)[rows]])}


# -- tables ------------------------------------------------------------------------------------------------------------


def _matrix(inputs: RunInputs, outcomes: Mapping[Key, Outcomes]) -> dict[str, dict[str, Estimate]]:
    """Rows are interventions; columns shares of test prompts, estimated from those measured (n), with intervals.

    The first columns are the behaviours of the judged prompts of a label; the others what baseline declines, judged or
    not, become: answered (`OPENED`), the other way of declining, or neither (another question's answer, no answer). A
    share is unknown where of some kind of prompts (answered ones under random directions) none is measured.
    """
    corpus, behaviour, test = inputs.corpus, inputs.behaviour, inputs.corpus.within("test")
    answered_benign = behaviour.answered_benign("test")
    columns: dict[str, tuple[np.ndarray, Collection[str]]] = {
        "refusal_on_harmful": (np.flatnonzero(corpus.harmful & test), behaviour.actions_of("normative")),
        "abstention_on_uncertain": (np.flatnonzero(corpus.uncertain & test), behaviour.actions_of("epistemic")),
        "answering_on_benign": (np.flatnonzero(corpus.benign & test), ANSWERED),
        "refusal_on_answered_benign": (answered_benign, {"refuse"}),
        "abstention_on_answered_benign": (answered_benign, {"abstain"}),
    }

    def row(of: Outcomes) -> dict[str, Estimate]:
        shares: dict[str, Estimate] = {}
        for column, (rows, counted) in columns.items():
            judged = judged_among(rows, of)
            shares[column] = sample_of(inputs, judged, of).rate(hits_among(of, judged, counted))
        for kind, plural in DECLINES.items():
            rows = behaviour.decliners(kind, "test")
            sample, still = sample_of(inputs, rows, of), behaviour.actions_of(kind)
            kinds = OPENED, DECLINED - still, still  # by reason no decline turns into one of another kind
            opened, turned, declines = (hits_among(of, rows, counted) for counted in kinds)
            became = {
                f"{plural}_answered": opened,
                TURNED[kind]: turned,
                f"{plural}_neither": ~(opened | turned | declines),
            }
            shares |= {column: sample.rate(hit) for column, hit in became.items()}
        return shares

    return {name: row(of) for (condition, name), of in outcomes.items() if condition == PLAIN}


def _turned(directions: Collection[Kind], testable: Collection[Kind], matrix: Matrix) -> list[str]:
    """Return a reason for each ablation that turns many declines of one kind into the other."""
    shares = {(k, b): round(matrix[f"ablate_{k}"][TURNED[b]].estimate, 9) for k in directions for b in testable}
    return [
        TURNS.format(k, turned, DECLINES[b], DECLINES[other_kind(b)])
        for (k, b), turned in shares.items()
        if turned >= MANY_TURNED
    ]


def _additions(
    inputs: RunInputs, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes], alpha: float
) -> dict[str, Estimate] | None:
    """Return how much more often adding the own direction induces each way of declining than adding the other's does.

    Measured on a draw of the benign test prompts that were answered; paired differences of shares.
    """
    if len(measured.directions) < len(KINDS):
        return None
    rows = inputs.behaviour.answered_benign("test")
    added = {kind: outcomes[PLAIN, f"add_{kind}"] for kind in KINDS}
    sample, contrasts = sample_of(inputs, rows, *added.values()), dict[str, Estimate]()
    for own, action in ACTION_OF.items():
        mine, other = (hits_among(added[kind], rows, {action}) for kind in (own, other_kind(own)))
        contrasts[f"own_minus_other_{action}"] = sample.difference(mine, other, alpha / len(KINDS))
    return contrasts


def _variant(
    inputs: RunInputs,
    outcomes: Mapping[Key, Outcomes],
    kind: Kind,
    variant: str,
    decliners: Mapping[Kind, Rows],
    alpha: float,
) -> VariantRecord:
    of = outcomes[variant, f"ablate_{kind}"]
    benign = of.rows[inputs.corpus.benign[of.rows] & inputs.behaviour.answered[of.rows]]
    falls = {b: float(_fall(outcomes, (variant, f"ablate_{kind}"), rows).mean()) for b, rows in decliners.items()}

    def share_of(rows: Rows, counted: Collection[str]) -> Estimate | None:
        """Return None if there are no prompts; unjudged ones are no hits."""
        if not len(rows):
            return None
        return grouped_rate(of.among(rows).hits(counted), inputs.corpus.groups_among(rows), alpha)

    return VariantRecord(
        ablated=kind,
        variant=variant,
        stopped={b: share_of(rows, OPENED) for b, rows in decliners.items()},
        onset_effect={b: fall if np.isfinite(fall) else None for b, fall in falls.items()},
        benign_answered=share_of(benign, ANSWERED),
    )


# -- counterfactual answers: what declined prompts get with the gate that declined them opened -------------------------

LABELS = ("benign", "uncertain")  # harmful prompts are rightly declined, and not counted


def gate_open(inputs: RunInputs) -> None:
    """Write stages/gate_open.json, from the outcomes of the dissociation's ablations.

    Benign and uncertain test prompts that were refused are counted with the normative direction ablated; those
    abstained from, with the epistemic direction ablated. The control ablates the *other* direction on the same prompts:
    an answer that both ablations give is not due to this gate.
    """
    measured, outcomes = _read_measured(inputs)
    normative, epistemic = (_opened(inputs, kind, measured, outcomes) for kind in KINDS)
    OpenedGates(normative=normative, epistemic=epistemic).write(inputs.file("stages/gate_open.json"))


def _opened(inputs: RunInputs, kind: Kind, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes]) -> OpenedGate:
    if kind not in measured.directions:
        own = inputs.config.dissociate.directions is None and "one-or-two" in inputs.config.ask
        reason = missing_direction(inputs, kind) if own else measured.absent[kind]
        return OpenedGate(applicable=False, reason=reason)
    corpus, declined = inputs.corpus, inputs.behaviour.declined(kind)
    rows_of = {label: np.flatnonzero(corpus.labelled(label) & declined & corpus.within("test")) for label in LABELS}
    if not any(map(len, rows_of.values())):
        what = "refused" if kind == "normative" else "abstained from"
        return OpenedGate(applicable=False, reason=f"no benign or uncertain test prompt is {what}")
    gate, other = outcomes[PLAIN, f"ablate_{kind}"], outcomes.get((PLAIN, f"ablate_{other_kind(kind)}"))
    labels: dict[str, OpenedLabel] = {}
    for label, rows in rows_of.items():
        known = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
        groups, control = corpus.groups_among(rows), None if other is None else other.among(rows)
        labels[label] = OpenedLabel(
            answered=share(gate.among(rows), ANSWERED, groups, control),  # its `change` is against the other gate
            answered_other_gate_open=None if control is None else share(control, ANSWERED, groups),
            right=share(gate.among(rows[known]), None, groups[known]),
        )
    return OpenedGate(applicable=True, reason="", variant=inputs.config.dissociate.variant.name, labels=labels)
