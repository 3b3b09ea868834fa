"""Where over-refused prompts lie between answered benign and harmful ones, at every layer (MOSR, arXiv 2511.19009)."""

from __future__ import annotations

import numpy as np

from experiments.probing.geometry_results import BoundaryRow
from experiments.run.inputs import RunInputs
from probes.geometry.boundary import place_between
from probes.statistics.seeds import named_rng
from scoring.actions import DECLINED


def over_refused_places(inputs: RunInputs, position: str, category: str | None = None) -> tuple[BoundaryRow, ...]:
    """Return a row for each layer; none where too few benign prompts are declined, answered, or too few are harmful.

    Prompts of all parts count: nothing is chosen, and no product of two means has a prompt in both.

    Args:
        category: take prompts of this category alone; None: all.
    """
    corpus, behaviour, store = inputs.corpus, inputs.behaviour, inputs.store
    declined = np.isin(behaviour.actions.astype(str), sorted(DECLINED))
    kind = np.select([corpus.benign & behaviour.answered, corpus.harmful, corpus.benign & declined], [0, 1, 2], -1)
    inside = np.array([category is None or prompt.category == category for prompt in corpus.prompts])
    rows = np.flatnonzero(inside & (kind >= 0) & store.present[store.positions.index(position)])
    found = []
    for layer in store.layers:
        rng = named_rng(inputs.config.seed, "blocks of the boundary distance")
        place = place_between(store.read(layer, position)[rows], kind[rows], corpus.groups[rows], rng)
        if place is not None:
            n = int((kind[rows] == 2).sum())
            found.append(BoundaryRow.of(place.counted(n), layer=layer, position=position))
    return tuple(found)
