"""Writes results.json: the results of all stages, under the keys that tests and users read.

Last come the cosines between the fitted write directions and those planted in an organism, which no verdict uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from experiments.dials.results import SteerResult
from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.probing.results import ProbeResults
from experiments.probing.write_directions import fit_write
from experiments.report.results import ModelRecord, Planted, Rates, RightActions, RunResults
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, write_samples
from experiments.run.completion_file import read_completions
from experiments.run.config import ModelConfig
from experiments.run.corpus import PARTS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import on_another_model
from experiments.triggers.results import TriggerResults
from experiments.uncertainty.results import UncertaintyResult
from extract.model.adapter import find_adapter
from extract.model.source import resolve
from organisms.mechanism import PlantedVariable, Truth
from probes.direction import Locus
from scoring.right_action import count_actions, load_adjacency
from scoring.scorecard import Counts, RightActionCard, right_action_card

NOT_IN_STEER = ("absent", "before", "after", "known_facts_right")  # they have keys of their own


def write_results(inputs: RunInputs) -> None:
    """Merge the stages' files into results.json."""
    probe = ProbeResults.read(inputs.file("stages/probe.json"))
    steer = SteerResult.read(inputs.file("stages/steer.json"))
    manifest, corpus, graded = (Manifest(inputs.file("manifest.json")).read(), inputs.corpus, grade_planted(inputs))
    sampled = inputs.config.uncertainty.samples > 0
    results = RunResults(
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
    results.write(inputs.file("results.json"))


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


# -- an organism's planted mechanism -----------------------------------------------------------------------------------


def grade_planted(inputs: RunInputs) -> Planted | None:
    """Compare write directions at the planted locus with truth.json; None if the model directory has none.

    Called after all verdicts are written: nothing before that reads truth.json.
    """
    try:
        path = _directory(inputs.config.model) / "truth.json"
    except ValueError:
        return None
    if not path.is_file():
        return None
    truth = Truth.read(path)
    recovered = {f"{kind}_cosine": _recovered(inputs, kind, truth) for kind in KINDS}
    return Planted(**recovered, site=truth.site, layer=truth.layer, position=truth.position)


def _directory(model: ModelConfig) -> Path:
    """Return the directory that may hold the truth: of the adapter, if there is one, or of the model."""
    return find_adapter(model.adapter) if model.adapter else Path(resolve(model.name))


def _recovered(inputs: RunInputs, kind: Kind, truth: Truth) -> float | None:
    """Return the cosine between the fitted direction and the span of the planted ones; None where none can be fitted.

    The class means of a product do not differ along its factors, so that no direction is to be found there.
    """
    samples, store = write_samples(inputs.behaviour, kind), inputs.store
    planted = _planted(inputs, kind, truth)
    if samples is None or not planted or truth.combine == "xor":
        return None
    layer = truth.layer if planted[0].layer is None else planted[0].layer
    if truth.site != store.site or layer not in store.layers or truth.position not in store.positions:
        return None
    fitted = fit_write(inputs.store.read, Locus(truth.site, layer, truth.position), kind, samples)
    if fitted is None:
        return None
    basis, _ = np.linalg.qr(np.array([variable.direction for variable in planted]).T)
    return float(np.linalg.norm(basis.T @ fitted.vector) / np.linalg.norm(fitted.vector))


def _planted(inputs: RunInputs, kind: Kind, truth: Truth) -> list[PlantedVariable]:
    """Return the planted variables of a behaviour; in a contrast, the one that is named as its way of declining."""
    if ways := inputs.config.prompts.contrast:
        return [variable for variable in truth.variables if variable.name == ways[KINDS.index(kind)]]
    return [variable for variable in truth.variables if ACTION_OF[kind] in variable.decides]
