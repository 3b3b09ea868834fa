"""Counterfactual answers: what declined prompts get with the gate that declined them opened."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.dissociation.applicability import missing_direction
from experiments.dissociation.judge import read_measured
from experiments.dissociation.measured_effects import MeasuredEffects
from experiments.dissociation.results import OpenedGate, OpenedGates, OpenedLabel
from experiments.run.behaviour import ACTION_OF, KINDS, Kind
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import PLAIN, Key, Outcomes, share
from scoring.actions import ANSWERED

LABELS = ("benign", "uncertain")  # harmful prompts are rightly declined, and not counted


def gate_open(inputs: RunInputs) -> None:
    """Write stages/gate_open.json, from the outcomes of the dissociation's ablations.

    Benign and uncertain test prompts that were refused are counted with the normative direction ablated; those
    abstained from, with the epistemic direction ablated. The control ablates the *other* direction on the same prompts:
    an answer that both ablations give is not due to this gate.
    """
    measured, outcomes = read_measured(inputs)
    normative, epistemic = (_opened(inputs, kind, measured, outcomes) for kind in KINDS)
    OpenedGates(normative=normative, epistemic=epistemic).write(inputs.file("stages/gate_open.json"))


def _opened(inputs: RunInputs, kind: Kind, measured: MeasuredEffects, outcomes: Mapping[Key, Outcomes]) -> OpenedGate:
    if kind not in measured.directions:
        from_file = inputs.config.dissociate.directions is not None
        return OpenedGate(
            applicable=False, reason=measured.absent[kind] if from_file else missing_direction(inputs, kind)
        )
    corpus, declined = inputs.corpus, inputs.behaviour.did(ACTION_OF[kind])
    rows = {label: np.flatnonzero(corpus.labelled(label) & declined & corpus.within("test")) for label in LABELS}
    if not any(map(len, rows.values())):
        what = "refused" if kind == "normative" else "abstained from"
        return OpenedGate(applicable=False, reason=f"no benign or uncertain test prompt is {what}")
    gate = outcomes[PLAIN, f"ablate_{kind}"]
    other = outcomes.get((PLAIN, f"ablate_{next(k for k in KINDS if k != kind)}"))
    return OpenedGate(
        applicable=True,
        reason="",
        variant=inputs.config.dissociate.variant.name,
        labels={label: _answers(inputs, of, gate, other) for label, of in rows.items()},
    )


def _answers(inputs: RunInputs, rows: np.ndarray, gate: Outcomes, other: Outcomes | None) -> OpenedLabel:
    """Return the shares answered with each gate open, and the share of right answers where one is known."""
    known = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
    groups, control = inputs.corpus.groups_among(rows), None if other is None else other.among(rows)
    return OpenedLabel(
        answered=share(gate.among(rows), ANSWERED, groups, control),  # its `change` is against the other gate
        answered_other_gate_open=None if control is None else share(control, ANSWERED, groups),
        right=share(gate.among(rows[known]), None, groups[known]),
    )
