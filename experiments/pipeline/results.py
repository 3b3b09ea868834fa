"""results.json: what the stages found, under the keys that tests and users read."""

from __future__ import annotations

from experiments.pipeline.planted import planted
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest, read_json
from extract.atomic_write import write_json

STEER = ("dials", "certified", "over_refusal_with_trigger", "frontier", "hypervolume", "matched", "least_regret",
         "system_lines", "one_dial_written_at", "as_looked_up")  # fmt: skip


def write_results(inputs: RunInputs) -> None:
    """Merge the stages' files into results.json."""
    probe, dissociation, triggers, gates, steer = (
        read_json(inputs.file(f"stages/{name}.json"))
        for name in ("probe", "dissociate", "triggers", "gate_open", "steer")
    )
    asked = inputs.config.uncertainty.samples > 0
    manifest = Manifest(inputs.file("manifest.json")).read()
    corpus = inputs.corpus
    graded = planted(inputs)
    write_json(
        inputs.file("results.json"),
        {
            "name": inputs.config.name,
            "model": manifest["model"],
            "device": manifest["device"],
            "versions": manifest["versions"],
            "prompts": corpus.counts(),
            "prompts_by_part": {
                part: {label: int((corpus.labelled(label) & corpus.within(part)).sum()) for label in corpus.counts()}
                for part in ("train", "validation", "calibration", "test")
            },
            "prompts_path": inputs.config.prompts.described(),
            "sites": probe["sites"],
            "writes": probe["writes"],
            "geometry": probe["geometry"],
            "onsets": probe["onsets"],
            "dissociation": dissociation,
            "triggers": triggers,
            "could_have_answered": gates,
            **({"uncertainty": read_json(inputs.file("stages/uncertainty.json"))} if asked else {}),
            "rates": {"before": steer["before"], "after": steer["after"]},
            "dials": steer["dials"],
            "dials_absent": steer["absent"],
            "known_facts_right": steer["known_facts_right"],
            "steer": {name: steer[name] for name in STEER if name in steer},
            **({} if graded is None else {"planted": graded}),
            "organism": graded is not None,
        },
    )
