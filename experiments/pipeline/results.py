"""Writes results.json: the results of all stages, under the keys that tests and users read.

Last come the cosines between the fitted write directions and those planted in an organism, which no verdict uses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from experiments.elicited.condition import LINE
from experiments.probing.results import ALL, UnspokenReads
from experiments.probing.write_directions import fit_write
from experiments.report.results import Planted, RightActions, RunResults
from experiments.run.basis import declines_by_reason
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, write_samples
from experiments.run.completion_file import read_completions, saved_tokens
from experiments.run.corpus import PARTS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.organism_prompts import on_another_model
from experiments.run.outcomes import NOTHING, Share, read_outcomes, share
from extract.errors import UserError
from extract.model.adapter import find_adapter
from extract.model.source import resolve
from organisms.mechanism import PlantedVariable, Truth
from probes.direction import Locus
from scoring.accommodation import AccommodationRecord, of_cases
from scoring.case import cases_of
from scoring.judges.config import name_of
from scoring.right_action import count_actions, load_adjacency
from scoring.scorecard import Counts, right_action_card


def write_results(inputs: RunInputs) -> None:
    """Merge the stages' files into results.json."""

    def stage(name: str) -> Any:
        path = inputs.file(f"stages/{name}.json")
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); run again") from None

    config, corpus, graded = inputs.config, inputs.corpus, grade_planted(inputs)
    settled = saved_tokens(inputs.completions, config.generate.max_new_tokens)
    manifest, probe, steer = Manifest(inputs.file("manifest.json")).read(), stage("probe"), stage("steer")
    results = {key: manifest[key] for key in ("model", "device", "versions")}
    results |= {key: probe.get(key, {}) for key in ("sites", "writes", "geometry", "onsets", "unspoken")}
    results |= {
        "name": config.name,
        "judge": name_of(config.judge),
        "ask": config.ask,
        "prompts": corpus.counts(),
        "prompts_by_part": {
            part: {label: int((corpus.labelled(label) & corpus.within(part)).sum()) for label in corpus.counts()}
            for part in PARTS
        },
        "settled_answers": len(settled),
        "settled_tokens": sum(settled),
        "only_read": len(inputs.reading.prompts) - len(inputs.prompts),
        "prompts_path": config.prompts.described(),
        "dissociation": stage("dissociate"),
        "triggers": stage("triggers"),
        "could_have_answered": stage("gate_open"),
        "rates": {when: steer.pop(when, None) for when in ("before", "after")}
        | {"by_reason": declines_by_reason(inputs.behaviour)},
        "right_action": _right_actions(inputs),
        "accommodation": _accommodation(inputs),
        "dials": steer.get("dials", {}),
        "dials_absent": steer.pop("absent", []),
        "known_facts_right": steer.pop("known_facts_right", None),
        "steer": steer,
        "left_out": config.budget.left_out if config.budget else (),
        "organism": graded is not None,
    }
    results |= {"uncertainty": stage("uncertainty")} if config.uncertainty.samples else {}
    results |= {} if graded is None else {"planted": graded}
    results |= {"contrast": config.prompts.contrast} if config.prompts.contrast else {}
    results |= {"organism_prompts": True} if on_another_model(config, inputs.prompts) else {}
    try:
        whole = RunResults.model_validate(results)
        whole.model_copy(update={"unspoken": said_under_line(whole.unspoken, inputs)}).write(
            inputs.file("results.json")
        )
    except ValidationError as error:
        what = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(f"{inputs.file('stages')} holds another result under {what}; delete it and run again") from None


def said_under_line(reads: UnspokenReads, inputs: RunInputs) -> UnspokenReads:
    """Return what is read with the share abstained from under the system line that elicits it, if one was tried."""
    path, prompts = inputs.file("outcomes.parquet/elicit.parquet"), inputs.prompts
    table = read_outcomes(path, [prompt.id for prompt in prompts]) if reads.categories and path.is_file() else {}
    if (LINE, NOTHING) not in table:
        return reads
    under = table[LINE, NOTHING]
    uncertain = under.rows[inputs.corpus.uncertain[under.rows]]

    def abstained(category: str) -> Share:
        rows = np.array([row for row in uncertain if category in (ALL, prompts[row].category)], dtype=int)
        return share(under.among(rows), {"abstain"}, inputs.corpus.groups[rows])

    told = (one.model_copy(update={"abstained_under_line": abstained(one.category)}) for one in reads.categories)
    return reads.model_copy(update={"categories": tuple(told)})


def _right_actions(inputs: RunInputs) -> RightActions:
    """Score the actions on test prompts, without and with the dials."""
    test = np.flatnonzero(inputs.corpus.within("test"))
    dual_use, adjacency = ~inputs.corpus.rated[test], load_adjacency()
    steered = {done.id: done.action for done in read_completions(inputs.file("completions_steered.jsonl"))}
    after = np.array([steered.get(inputs.prompts[row].id) for row in test], dtype=object)

    def counts(rows: np.ndarray, actions: np.ndarray) -> Counts:
        prompts = [inputs.prompts[row] for row in rows]
        right, acceptable = [p.right_action for p in prompts], [p.acceptable for p in prompts]
        return count_actions(right, acceptable, actions.tolist(), inputs.corpus.groups[rows])

    cards = (
        right_action_card(counts(test, actions), counts(test[dual_use], actions[dual_use]), adjacency)
        for actions in (inputs.behaviour.actions[test], after)
    )
    return RightActions(**dict(zip(("before", "after"), cards, strict=True)))


def _accommodation(inputs: RunInputs) -> AccommodationRecord | None:
    """Count the plain answers to loaded questions of every part, where the prompts hold pairs with direct ones."""
    cases, did = cases_of(inputs.prompts).values(), inputs.behaviour
    return of_cases(zip(cases, did.actions, did.correct, strict=True))


# -- an organism's planted mechanism -----------------------------------------------------------------------------------


def grade_planted(inputs: RunInputs) -> Planted | None:
    """Compare write directions with truth.json, which no verdict reads; None if the model directory has none."""
    model = inputs.config.model  # an adapter's directory may hold the truth, or a model's
    try:
        path = (find_adapter(model.adapter) if model.adapter else Path(resolve(model.name))) / "truth.json"
    except ValueError:
        return None
    if not path.is_file():
        return None
    truth = Truth.read(path)
    recovered = {f"{kind}_cosine": _recovered(inputs, kind, truth) for kind in KINDS}
    return Planted(**recovered, site=truth.site, layer=truth.layer, position=truth.position)


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
