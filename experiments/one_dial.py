"""The baseline of one dial: one threshold on both reads, and one write of declining either way.

It reads the greater of the two dials' probabilities, so that it knows all that they know and the comparison is of
knobs, not of probes: one linear probe of "harmful or uncertain" would do worse, and two dials would seem to buy more.
The write direction is fitted on declined against answered, whichever way it was declined, within the strata that the
two dials' own writes are fitted in, and stands where one of these stands. On a model with one shared knob it is that
knob; on a model with two it points between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.behaviour import KINDS, Behaviour, Kind, WriteSamples, write_samples
from experiments.context import Context
from experiments.writing import fit_write
from probes.direction import Direction

NAME = "either"


def either_samples(behaviour: Behaviour) -> WriteSamples | None:
    """Join the samples of both writes, each in its own strata; None where the model declines in neither way."""
    found = [(kind, samples) for kind in KINDS if (samples := write_samples(behaviour, kind))]
    if not found:
        return None
    strata = [f"{kind}/{name}" for kind, samples in found for name in samples.strata]
    return WriteSamples(
        np.concatenate([samples.rows for _, samples in found]),
        np.concatenate([samples.declined for _, samples in found]),
        np.array(strata, dtype=object),
        all(samples.within_label for _, samples in found),
    )


def either_writes(context: Context, writes: Mapping[Kind, Direction]) -> list[Direction]:
    """Fit the one write direction at each place where one of the two dials writes."""
    samples = either_samples(context.behaviour)
    if samples is None:
        return []
    places = dict.fromkeys(direction.locus for direction in writes.values())
    fitted = [fit_write(context.store.read, locus, "normative", samples) for locus in places]
    return [replace(direction, name=f"{NAME}_write") for direction in fitted if direction is not None]
