"""Verdicts on trigger word against intent and on every context factor, from a run's files without a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.factors.decision_change import decision_change
from experiments.factors.judge import Removal, judge_factors, judge_last_turn
from experiments.factors.observed import observe
from experiments.factors.projection_shifts import shifts
from experiments.factors.results import ActionsAfterRemoval
from experiments.run.inputs import RunInputs
from experiments.triggers.projection import REPORTED
from experiments.triggers.results import TriggerFindings, TriggerMeasures, TriggerResults, TriggerShareResult
from experiments.triggers.trigger_share import TriggerShare, trigger_share


def judge_triggers(inputs: RunInputs) -> None:
    """Write stages/triggers.json.

    Behaviour is counted on all parts of the prompts, because nothing is fitted to it. Results that rest on a fit are
    reported on held-out parts.
    """
    corpus, refused, seed = inputs.corpus, inputs.behaviour.did("refuse"), inputs.config.seed
    judged = np.flatnonzero([action is not None for action in inputs.behaviour.actions])
    measures = TriggerMeasures.read(inputs.file("stages/trigger_measures.json"))
    observed = observe(corpus, refused, judged, seed)
    along = {name: np.array(values, dtype=float) for name, values in measures.along.items()}  # None becomes NaN
    held_out = judged[corpus.within(*REPORTED)[judged]]
    shifted = shifts(corpus, refused, held_out, observed.effects, along, seed)
    TriggerResults(
        **dict(share_result(trigger_share(corpus, refused, judged))),
        factors=judge_factors(observed, _removals(inputs, measures.removals), shifted),
        last_turn_alone=judge_last_turn(measures.last_turn),
        **{name: getattr(measures, name) for name in TriggerFindings.model_fields},
    ).write(inputs.file("stages/triggers.json"))


def _removals(inputs: RunInputs, asked: Mapping[str, ActionsAfterRemoval]) -> dict[str, Removal]:
    row_of = {prompt.id: row for row, prompt in enumerate(inputs.prompts)}
    refused = inputs.behaviour.did("refuse")
    return {
        name: Removal(
            decision_change(inputs.corpus, np.array([row_of[i] for i in of.ids], dtype=int), refused, of.actions)
        )
        for name, of in asked.items()
    }


def share_result(judged: TriggerShare) -> TriggerShareResult:
    """Return the trigger share as results.json holds it; cells without prompts are left out."""
    return TriggerShareResult(
        verdict=judged.verdict,
        reason=judged.reason,
        trigger_share=judged.share.estimate if judged.share.known else None,
        trigger_share_ci=(judged.share.low, judged.share.high),
        effects=judged.effects,
        refused={name: rate.counted(judged.n[name]) for name, rate in judged.refused.items() if rate.known},
    )
