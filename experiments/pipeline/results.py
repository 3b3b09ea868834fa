"""Writes results.json: the results of all stages, under the keys that tests and users read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from experiments.dials.results import SteerResult
from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.pipeline.planted import grade_planted
from experiments.probing.results import ProbeResults
from experiments.report.results import ModelRecord, Rates, RightActions, RunResults
from experiments.run.completion_file import read_completions
from experiments.run.corpus import PARTS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import on_another_model
from experiments.triggers.results import TriggerResults
from experiments.uncertainty.results import UncertaintyResult
from scoring.right_action import count_actions, load_adjacency
from scoring.scorecard import Counts, right_action_card
from scoring.scorecard_record import RightActionCard

NOT_IN_STEER = ("absent", "before", "after", "known_facts_right")  # they have keys of their own


def write_results(inputs: RunInputs) -> None:
    """Merge the stages' files into results.json."""
    probe = ProbeResults.read(inputs.file("stages/probe.json"))
    steer = SteerResult.read(inputs.file("stages/steer.json"))
    manifest, corpus, graded = (Manifest(inputs.file("manifest.json")).read(), inputs.corpus, grade_planted(inputs))
    sampled = inputs.config.uncertainty.samples > 0
    found = RunResults(
        name=inputs.config.name,
        model=ModelRecord.model_validate(manifest["model"]),
        device=manifest["device"],
        versions=manifest["versions"],
        prompts=corpus.counts(),
        prompts_by_part={
            part: {label: int((corpus.labelled(label) & corpus.within(part)).sum()) for label in corpus.counts()}
            for part in PARTS
        },
        prompts_path=inputs.config.prompts.described(),
        sites=probe.sites,
        writes=probe.writes,
        geometry=probe.geometry,
        onsets=probe.onsets,
        dissociation=Dissociation.read(inputs.file("stages/dissociate.json")),
        triggers=TriggerResults.read(inputs.file("stages/triggers.json")),
        could_have_answered=OpenedGates.read(inputs.file("stages/gate_open.json")),
        **({"uncertainty": UncertaintyResult.read(inputs.file("stages/uncertainty.json"))} if sampled else {}),
        rates=Rates(before=steer.before, after=steer.after),
        right_action=_right_actions(inputs),
        dials=steer.dials,
        dials_absent=steer.absent,
        known_facts_right=steer.known_facts_right,
        steer=SteerResult.model_validate({k: v for k, v in steer.to_dict().items() if k not in NOT_IN_STEER}),
        **({} if graded is None else {"planted": graded}),
        left_out=inputs.config.budget.left_out if inputs.config.budget else (),
        organism=graded is not None,
        **({"contrast": inputs.config.prompts.contrast} if inputs.config.prompts.contrast else {}),
        **({"organism_prompts": True} if on_another_model(inputs.config, inputs.prompts) else {}),
    )
    found.write(inputs.file("results.json"))


def _right_actions(inputs: RunInputs) -> RightActions:
    """Score the actions on test prompts, without and with the dials."""
    test = np.flatnonzero(inputs.corpus.within("test"))
    steered = {done.id: done.action for done in read_completions(inputs.file("completions_steered.jsonl"))}
    after = [steered.get(inputs.prompts[row].id) for row in test]
    return RightActions(
        before=_right_action(inputs, test, list(inputs.behaviour.actions[test])),
        after=_right_action(inputs, test, after),
    )


def _right_action(inputs: RunInputs, rows: Int[np.ndarray, " rows"], actions: Sequence[str | None]) -> RightActionCard:
    dual_use = np.flatnonzero(~inputs.corpus.rated[rows]).tolist()
    of_dual_use = _counts(inputs, rows[dual_use], [actions[i] for i in dual_use])
    return right_action_card(_counts(inputs, rows, actions), of_dual_use, load_adjacency())


def _counts(inputs: RunInputs, rows: Int[np.ndarray, " rows"], actions: Sequence[str | None]) -> Counts:
    prompts = [inputs.prompts[row] for row in rows]
    right, acceptable = [p.right_action for p in prompts], [p.acceptable for p in prompts]
    return count_actions(right, acceptable, actions, inputs.corpus.groups[rows])
