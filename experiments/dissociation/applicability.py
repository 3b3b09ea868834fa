"""Checks whether a dissociation can be tested: directions, decliners, and what is missing, with the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from experiments.probing.results import ProbeResults
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import ACTION_OF, KINDS, MIN_BASELINE, Behaviour, Kind, write_samples
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from extract.errors import UserError
from probes.direction import Direction
from probes.statistics.intervals import Estimate, difference, wilson
from steering.direction_file import load_directions

BEHAVIOUR: dict[Kind, str] = {"normative": "refusal on harmful", "epistemic": "abstention on uncertain"}
MIN_GROUPS = 10  # independent groups of decliners; with fewer, intervals are too wide to be useful
LEVEL = 0.05  # of the test that a behaviour follows its label; fixed, so that `dissociate.alpha` changes no measurement


@dataclass(frozen=True)
class DissociationSetup:
    """The directions and test prompts of one dissociation."""

    directions: Mapping[Kind, Direction]
    decliners: Mapping[Kind, Int[np.ndarray, " decliners"]]  # test rows that correctly decline at baseline
    absent: Mapping[Kind, str]  # behaviours that cannot be tested, and why

    @property
    def testable(self) -> dict[Kind, Int[np.ndarray, " decliners"]]:
        """The decliners of each behaviour on which effects can be measured."""
        return {kind: rows for kind, rows in self.decliners.items() if kind not in self.absent and len(rows)}


def find_setup(loaded: LoadedRun) -> DissociationSetup:
    """Find the directions and decliners to test, and why a behaviour cannot be tested."""
    behaviour = loaded.behaviour
    decliners = {kind: behaviour.decliners(kind, "test") for kind in KINDS}
    try:
        directions = _directions(loaded)
    except UserError as error:  # the given directions do not fit this model, so nothing can be tested
        return DissociationSetup({}, decliners, dict.fromkeys(KINDS, str(error)))
    onsets = context_onsets(loaded)
    absent: dict[Kind, str] = {}
    for kind in KINDS:
        reason = (
            _too_rare(kind, decliners[kind])
            or _too_few_groups(kind, loaded.corpus, decliners[kind])
            or _unpredicted(behaviour, kind)
            or ("" if kind in directions else missing_direction(loaded, kind))
            or _no_null(behaviour, kind)
            or onsets.lacking(ACTION_OF[kind])
        )
        if reason:
            absent[kind] = reason
    return DissociationSetup(directions, decliners, absent)


def _too_rare(kind: Kind, rows: np.ndarray) -> str:
    if len(rows) >= MIN_BASELINE:
        return ""
    does = "refuses" if kind == "normative" else "abstains from"
    return (
        f"{BEHAVIOUR[kind]} is absent: {len(rows)} baseline occurrences among test prompts, {MIN_BASELINE} are "
        f"needed; give more prompts that the model {does}, if there are any"
    )


def _too_few_groups(kind: Kind, corpus: Corpus, rows: np.ndarray) -> str:
    n = corpus.effective_groups(rows)
    if n >= MIN_GROUPS:
        return ""
    return (
        f"{BEHAVIOUR[kind]}: the {len(rows)} decliners among test prompts count as {n:.1f} independent ones (a "
        f"pair, entity or template counts once), {MIN_GROUPS} are needed; give prompts of more pairs"
    )


def _unpredicted(behaviour: Behaviour, kind: Kind) -> str:
    """Return a reason if the prompts of a label are not declined more often than other prompts, else "".

    The behaviour then does not follow the label: the labels are shuffled, or the model declines everything.
    """
    corpus, did = behaviour.corpus, behaviour.did(ACTION_OF[kind])
    judged = corpus.rated & np.array([action is not None for action in behaviour.actions])
    own = (corpus.harmful if kind == "normative" else corpus.uncertain) & judged
    mine, others = (_rate(did, corpus, np.flatnonzero(rows)) for rows in (own, judged & ~own))
    if difference(mine, others).low > 0:
        return ""
    label = "harmful" if kind == "normative" else "uncertain"
    return (
        f"{BEHAVIOUR[kind]} is not tied to its label: the model {ACTION_OF[kind]}s {mine.estimate:.0%} of {label} "
        f"prompts and {others.estimate:.0%} of all others; check the labels"
    )


def _rate(did: np.ndarray, corpus: Corpus, rows: np.ndarray) -> Estimate:
    n = corpus.effective_groups(rows)
    return wilson(float(did[rows].mean()) * n, n, LEVEL) if len(rows) else Estimate(float("nan"), 0.0, 1.0)


def _no_null(behaviour: Behaviour, kind: Kind) -> str:
    """Return a reason if no permuted-label null can be drawn (directions may come from a file), else ""."""
    if write_samples(behaviour, kind) is not None and len(behaviour.decliners(kind, "validation")):
        return ""
    return (
        f"no permuted-label null can be drawn for {BEHAVIOUR[kind]}: too few training or validation prompts are "
        "declined that way, or answered; give more prompts"
    )


# -- directions --------------------------------------------------------------------------------------------------------


def _directions(loaded: LoadedRun) -> dict[Kind, Direction]:
    given = loaded.config.dissociate.directions
    if given is None:
        directions = load_directions(loaded.file("directions.safetensors"))
    else:
        try:
            directions = load_directions(given)
        except Exception as error:  # safetensors raises its own exception class for any malformed file
            raise UserError(
                f"dissociate.directions: {given} cannot be read as directions ({error}); "
                "give a directions.safetensors that refusal probe wrote"
            ) from None
        for direction in directions.values():
            check_direction(loaded, direction)
    return {kind: directions[f"{kind}_write"] for kind in KINDS if f"{kind}_write" in directions}


def check_direction(loaded: LoadedRun, direction: Direction) -> None:
    """Check that a direction fits this model and this run's activations.

    Raises:
        UserError: the width, weights, layer, position or site differ; names it and the remedy.
    """
    model, locus, name = loaded.model, direction.locus, direction.name
    remedy = "fit directions on this model with: refusal probe CONFIG"
    weights = direction.provenance.get("weights")
    if len(direction.vector) != model.d_model:
        raise UserError(
            f"direction {name!r} has {len(direction.vector)} numbers, the stream of {model.name} has "
            f"{model.d_model}; {remedy}"
        )
    if weights != model.fingerprint() and direction.provenance.get("cast_weights") == model.cast_fingerprint():
        loaded.reporter.say(f"direction {name!r} was fitted on these weights in another dtype")
    elif weights != model.fingerprint():
        other = f"other weights ({direction.provenance.get('model', 'unnamed')})" if weights else "unnamed weights"
        raise UserError(f"direction {name!r} was fitted on {other}, not on {model.name}; {remedy}")
    if not 0 <= locus.layer < model.n_layers:
        raise UserError(
            f"direction {name!r} belongs to layer {locus.layer}; {model.name} has layers 0 to "
            f"{model.n_layers - 1}; {remedy}"
        )
    if locus.position not in loaded.store.positions:
        raise UserError(
            f"direction {name!r} was fitted at {locus.position}, which this run's activations do not have "
            f"(they have {', '.join(loaded.store.positions)}); {remedy}"
        )
    if locus.site != loaded.store.site:
        raise UserError(
            f"direction {name!r} belongs to {locus.site}, this run's activations to {loaded.store.site}; "
            f"extract that site (extract.site), or {remedy}"
        )


def missing_direction(inputs: RunInputs, kind: Kind) -> str:
    """Return the reason why there is no write direction of a kind."""
    if inputs.config.dissociate.directions is not None:
        return f"{inputs.config.dissociate.directions} holds no direction named {kind}_write"
    probed = ProbeResults.read(inputs.file("stages/probe.json"))
    return f"no {kind} write direction: {probed.writes[kind].reason}"
