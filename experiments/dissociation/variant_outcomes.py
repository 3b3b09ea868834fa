"""Every variant of ablation: how many decliners it stops, and how many benign prompts are still answered.

Ablating to zero a direction whose benign projection is not near zero can make benign prompts refuse (METHODS). An
effect at all later layers that one layer does not have shows that the decision is computed again. One variant alone
shows neither.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.measured_effects import TriedVariant, numbers
from experiments.dissociation.onset_null import OnsetEffects
from experiments.responses.loaded_run import LoadedRun
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Key, Outcomes
from extract.model.edit import Edit
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from steering.ablation import ablation, ablation_at_every_layer, covers_layers
from steering.ablation_variant import VARIANTS

EVERYWHERE = "zero/every/all"


def try_variants(
    loaded: LoadedRun, setup: DissociationSetup, onset: OnsetEffects | None
) -> tuple[list[TriedVariant], dict[Key, Outcomes]]:
    """Try each variant on the decliners used for onset effects, and on as many answered benign prompts."""
    if onset is None or not loaded.config.dissociate.variants:
        return [], {}
    trials = [(kind, *trial) for kind, d in setup.directions.items() for trial in _trials(d, loaded.model.n_layers)]
    rows = np.sort(np.concatenate([_sample_benign(loaded), *onset.rows.values()]))
    tried, outcomes = [], dict[Key, Outcomes]()
    with loaded.reporter.task("other ways of ablating", len(trials) * len(rows)) as advance:
        for kind, name, edits in trials:
            falls = None if name == EVERYWHERE else onset.falls([edits])  # the scorer caches prompts that this edits
            effects = {b: None if falls is None else numbers([falls[b][0]])[0] for b in onset.rows}
            tried.append(TriedVariant(ablated=kind, variant=name, onset_effect=effects))
            completions = loaded.completer.complete(rows.tolist(), edits=edits)
            outcomes[name, f"ablate_{kind}"] = Outcomes.completed(rows, completions, loaded.prompts)
            advance(len(rows))
    return tried, outcomes


def _sample_benign(inputs: RunInputs) -> Int[np.ndarray, " prompts"]:
    """Draw the rows of answered benign test prompts on which variants are tried."""
    rng, most = named_rng(inputs.config.seed, "ablation variants"), inputs.config.dissociate.n_onset
    return rng.permutation(inputs.behaviour.answered_benign("test"))[:most]


def _trials(direction: Direction, n_layers: int) -> Iterator[tuple[str, list[Edit]]]:
    for variant in VARIANTS:
        if covers_layers(direction, variant, n_layers):
            yield variant.name, ablation(direction, variant)
    yield EVERYWHERE, ablation_at_every_layer(direction, n_layers)
