"""Writes results.json: the results of all stages, under the keys that tests and users read."""

from __future__ import annotations

from experiments.dials.results import SteerResult
from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.pipeline.planted import grade_planted
from experiments.probing.results import ProbeResults
from experiments.report.results import ModelRecord, Rates, RunResults
from experiments.run.corpus import PARTS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import on_another_model
from experiments.triggers.results import TriggerResults
from experiments.uncertainty.results import UncertaintyResult

NOT_IN_STEER = ("absent", "before", "after", "known_facts_right")  # they have keys of their own


def write_results(inputs: RunInputs) -> None:
    """Merge the stages' files into results.json."""
    probe = ProbeResults.read(inputs.file("stages/probe.json"))
    steer = SteerResult.read(inputs.file("stages/steer.json"))
    manifest, corpus, graded = (
        Manifest(inputs.file("manifest.json")).read(),
        inputs.corpus,
        grade_planted(inputs),
    )
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
        dials=steer.dials,
        dials_absent=steer.absent,
        known_facts_right=steer.known_facts_right,
        steer=SteerResult.model_validate({k: v for k, v in steer.to_dict().items() if k not in NOT_IN_STEER}),
        **({} if graded is None else {"planted": graded}),
        organism=graded is not None,
        **({"organism_prompts": True} if on_another_model(inputs.config, inputs.prompts) else {}),
    )
    found.write(inputs.file("results.json"))
