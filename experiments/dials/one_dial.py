"""One-dial baseline: one threshold on both reads and one write direction for both ways of declining.

It reads the greater of the two dials' probabilities, so the comparison is of knobs and not of probes: one linear probe
of "harmful or uncertain" would do worse and make two dials look better. It writes as the two dials do (actuator,
strength, steps, layers); where they bias openings, it biases the openings of both. The write direction is fitted on
declined (either way) against answered prompts, within the strata of the two dials' own write directions, at the locus
of one of them. On a model with one shared knob it is that knob; on a model with two it lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.dials.write import direction_writer, onset_bias_writer
from experiments.probing.write_directions import fit_write
from experiments.run.behaviour import KINDS, Behaviour, Kind, WriteSamples, write_samples
from experiments.run.inputs import RunInputs
from steering.actuator import OnsetBias
from steering.writer import Writer

NAME = "either"


def either_samples(behaviour: Behaviour) -> WriteSamples | None:
    """Join the samples of both write directions, each in its own strata; None where the model never declines."""
    found = [(kind, samples) for kind in KINDS if (samples := write_samples(behaviour, kind))]
    if not found:
        return None
    strata = [f"{kind}/{name}" for kind, samples in found for name in samples.strata]
    rows = np.concatenate([samples.rows for _, samples in found])
    return WriteSamples(
        rows,
        np.concatenate([samples.declined for _, samples in found]),
        np.array(strata, dtype=object),
        behaviour.corpus.groups_among(rows),
        all(samples.within_label for _, samples in found),
    )


def either_writers(inputs: RunInputs, writers: Mapping[Kind, Writer]) -> list[Writer]:
    """Return the candidate writers: a direction at each locus where one of the two writes, or all their openings.

    A writer at the normative dial's locus also opens what that dial opens, so that thresholds are compared, not writes.

    There are none if the model never declines, or the run leaves this baseline out.
    """
    if not inputs.config.steer.one_dial:
        return []
    config, samples = inputs.config.steer, either_samples(inputs.behaviour)
    biases = [writer.actuator for writer in writers.values() if isinstance(writer.actuator, OnsetBias)]
    if biases:
        return [onset_bias_writer(config, [prefix for bias in biases for prefix in bias.prefixes])]
    if samples is None:
        return []
    places = dict.fromkeys(writer.direction.locus for writer in writers.values() if writer.direction)
    later = inputs.store.layers if config.layers == "later" else ()
    fitted = [fit_write(inputs.store.read, locus, "normative", samples, later) for locus in places]
    opening = {writer.direction.locus: writer.opening for writer in writers.values() if writer.direction}
    return [
        replace(direction_writer(config, replace(direction, name=f"{NAME}_write")), opening=opening[locus])
        for locus, direction in zip(places, fitted, strict=True)
        if direction is not None
    ]
