"""Checks whether a dissociation can be tested: directions, decliners, and what is missing, with the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from experiments.dissociation.results import Looks
from experiments.probing.results import ProbeResults
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.basis import lacking, no_null
from experiments.run.behaviour import ACTION_OF, KINDS, Kind
from experiments.run.config import NOT_ASKED
from experiments.run.corpus import TESTED
from experiments.run.inputs import RunInputs
from extract.errors import UserError
from probes.direction import Direction
from steering.direction_file import load_directions


@dataclass(frozen=True)
class DissociationSetup:
    """The directions and test prompts of one dissociation."""

    directions: Mapping[Kind, Direction]
    decliners: Mapping[Kind, Int[np.ndarray, " decliners"]]  # tested rows that correctly decline at baseline
    absent: Mapping[Kind, str]  # behaviours that cannot be tested, and why

    @property
    def testable(self) -> dict[Kind, Int[np.ndarray, " decliners"]]:
        """The decliners of each behaviour on which effects can be measured."""
        return {kind: rows for kind, rows in self.decliners.items() if kind not in self.absent and len(rows)}


def find_setup(loaded: LoadedRun) -> DissociationSetup:
    """Find the directions and decliners to test, and why a behaviour cannot be tested."""
    behaviour = loaded.behaviour
    decliners = {kind: behaviour.decliners(kind, *TESTED) for kind in KINDS}
    if "one-or-two" not in loaded.config.ask:
        return DissociationSetup({}, decliners, dict.fromkeys(KINDS, NOT_ASKED))
    try:
        directions = _directions(loaded)
    except UserError as error:  # the given directions do not fit this model, so nothing can be tested
        return DissociationSetup({}, decliners, dict.fromkeys(KINDS, str(error)))
    onsets = context_onsets(loaded)
    reasons = {
        kind: lacking(behaviour, kind)
        or ("" if kind in directions else missing_direction(loaded, kind))
        or no_null(behaviour, kind)
        or onsets.lacking(ACTION_OF[kind])
        for kind in KINDS
    }
    return DissociationSetup(directions, decliners, {kind: reason for kind, reason in reasons.items() if reason})


def looks(inputs: RunInputs) -> tuple[float, ...]:
    """Return the looks at the effects, the last of which is this one.

    Each is the share of the groups of the file's harmful and uncertain prompts that are answered. Earlier ones are
    those of the run directory with the same model and prompts, unless as many were answered.
    """
    path, now = inputs.file("looks.json"), inputs.corpus.share_of_groups(inputs.whole)
    earlier = Looks.read(path) if path.is_file() else None
    shares = earlier.shares if earlier is not None and earlier.of == looked_at(inputs) else ()
    return *(share for share in shares if share < now), now


def looked_at(inputs: RunInputs) -> tuple[str, str]:
    """Return the model and the prompts, of which all looks are."""
    return inputs.config.model.name, inputs.config.prompts.described()


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
    model, store, locus, name = loaded.model, loaded.store, direction.locus, direction.name
    remedy, weights = "fit directions on this model with: refusal probe CONFIG", direction.provenance.get("weights")
    recast = weights != model.fingerprint() and direction.provenance.get("cast_weights") == model.cast_fingerprint()
    other = f"other weights ({direction.provenance.get('model', 'unnamed')})" if weights else "unnamed weights"
    positions, last = ", ".join(store.positions), model.n_layers - 1
    wrong = {
        f"has {len(direction.vector)} numbers, the stream of {model.name} has {model.d_model};": (
            len(direction.vector) != model.d_model
        ),
        f"was fitted on {other}, not on {model.name};": weights != model.fingerprint() and not recast,
        f"belongs to layer {locus.layer}; {model.name} has layers 0 to {last};": not 0 <= locus.layer <= last,
        f"was fitted at {locus.position}, which this run's activations do not have (they have {positions});": (
            locus.position not in store.positions
        ),
        f"belongs to {locus.site}, this run's activations to {store.site}; extract that site (extract.site), or": (
            locus.site != store.site
        ),
    }
    for what, is_so in wrong.items():
        if is_so:
            raise UserError(f"direction {name!r} {what} {remedy}")
    if recast:
        loaded.reporter.say(f"direction {name!r} was fitted on these weights in another dtype")


def missing_direction(inputs: RunInputs, kind: Kind) -> str:
    """Return the reason why there is no write direction of a kind."""
    if inputs.config.dissociate.directions is not None:
        return f"{inputs.config.dissociate.directions} holds no direction named {kind}_write"
    probed = ProbeResults.read(inputs.file("stages/probe.json"))
    return f"no {kind} write direction: {probed.writes[kind].reason}"
