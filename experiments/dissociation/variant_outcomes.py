"""Every variant of ablation: how many decliners it stops, and how many benign prompts are still answered.

Ablating to zero a direction whose benign projection is not near zero can make benign prompts refuse (METHODS). An
effect at all later layers that one layer does not have shows that the decision is computed again. One variant alone
shows neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from jaxtyping import Int

from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.measured_effects import VariantOutcomes
from experiments.dissociation.onset_null import OnsetEffects
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from extract.model.edit import Edit
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED, OPENED
from steering.ablation import ablation, ablation_at_every_layer, covers_layers
from steering.ablation_variant import VARIANTS

EVERYWHERE = "zero/every/all"


def sample_benign(inputs: RunInputs, onset: OnsetEffects | None) -> Int[np.ndarray, " prompts"]:
    """Draw the rows of answered benign test prompts on which variants are tried; none if no variant is tried."""
    if onset is None or not inputs.config.dissociate.variants:
        return np.zeros(0, dtype=int)
    rng, most = named_rng(inputs.config.seed, "ablation variants"), inputs.config.dissociate.n_onset
    return np.sort(rng.permutation(inputs.behaviour.answered_benign("test"))[:most])


def variant_outcomes(loaded: LoadedRun, setup: DissociationSetup, onset: OnsetEffects | None) -> list[VariantOutcomes]:
    """Try each variant on the decliners used for onset effects, and on as many answered benign prompts."""
    if onset is None or not loaded.config.dissociate.variants:
        return []
    trials = [(kind, *trial) for kind, d in setup.directions.items() for trial in _trials(d, loaded.model.n_layers)]
    benign = sample_benign(loaded, onset)
    n_rows = len(benign) + sum(map(len, onset.rows.values()))
    found = []
    with loaded.reporter.task("other ways of ablating", len(trials) * n_rows) as advance:
        for kind, name, edits in trials:
            found.append(_outcomes(loaded, kind, name, edits, onset, benign))
            advance(n_rows)
    return found


def _trials(direction: Direction, n_layers: int) -> Iterator[tuple[str, list[Edit]]]:
    for variant in VARIANTS:
        if covers_layers(direction, variant, n_layers):
            yield variant.name, ablation(direction, variant)
    yield EVERYWHERE, ablation_at_every_layer(direction, n_layers)


def _outcomes(
    loaded: LoadedRun, kind: Kind, name: str, edits: list[Edit], onset: OnsetEffects, benign: np.ndarray
) -> VariantOutcomes:
    falls = None if name == EVERYWHERE else onset.falls([edits])  # the onset scorer caches prompts that this edits
    effects = {b: float("nan") if falls is None else float(falls[b][0]) for b in onset.rows}
    return VariantOutcomes(
        ablated=kind,
        variant=name,
        stopped={b: _among(loaded, rows, edits, OPENED) for b, rows in onset.rows.items()},
        onset_effect={b: effect if np.isfinite(effect) else None for b, effect in effects.items()},
        benign_answered=_among(loaded, benign, edits, ANSWERED),
    )


def _among(loaded: LoadedRun, rows: np.ndarray, edits: list[Edit], counted: Collection[str]) -> tuple[bool, ...]:
    return tuple(action in counted for action in loaded.completer.actions(rows.tolist(), edits=edits))
