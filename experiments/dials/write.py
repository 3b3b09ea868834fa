"""Writers of the dials: the configured actuator along the run's write directions, or on openings it has learned.

One dial, with which two are compared, writes as they do, along a direction of declined (either way) against answered
prompts within the strata of both. On a model with one shared knob it is that knob; with two it lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from experiments.dials.read import thought_end
from experiments.probing.stage import learned_onsets
from experiments.probing.write_directions import fit_write
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import TokenIds
from experiments.run.behaviour import ACTION_OF, KINDS, MIN_BASELINE, Behaviour, Kind, WriteSamples, write_samples
from experiments.run.config import SteerConfig, set_at
from experiments.run.inputs import MOSTLY, RunInputs
from extract.errors import UserError
from probes.direction import Direction, Locus, Provenance
from steering.actuator import Actuator, ActuatorRecord, OnsetBias, actuator_of
from steering.direction_file import load_directions
from steering.writer import Writer

EITHER = "either"  # the name of the one dial
SAYS = 100.0  # nats, more than any score is below another: an answer is said as it is written
SAME = 0.1  # of the largest singular value: directions of categories that differ by less count as one


def dial_writers(loaded: LoadedRun) -> dict[Kind, Writer]:
    """Return the writer of each dial that can be built, in the order in which they decide; UserError if none can be."""
    config = loaded.config.steer
    if config.actuator == "onset_bias":
        return {kind: onset_bias_writer(config, prefixes) for kind, prefixes in _openings(loaded).items()}
    directions = load_directions(loaded.file("directions.safetensors"))
    if config.layers == "later" and (absent := sorted(set(range(loaded.model.n_layers)) - set(loaded.store.layers))):
        raise UserError(
            f"steer.layers is 'later', but activations of layer {absent[0]} are not extracted; leave "
            "extract.layers out, so that all are"
        )
    own = {kind: directions[f"{kind}_write"] for kind in KINDS if f"{kind}_write" in directions}
    if config.at == "thought":
        own = {kind: at_thought_end(loaded, kind, direction) for kind, direction in own.items()}
    writers = {kind: direction_writer(config, direction) for kind, direction in own.items()}
    if config.permit == "subspace" and "normative" in writers:
        locus = own["normative"].locus
        writers["normative"] = replace(writers["normative"], opening=opening_directions(loaded, locus))
    return writers


def at_thought_end(loaded: LoadedRun, kind: Kind, direction: Direction) -> Direction:
    """Return the direction that is fitted at the thought's end, at the layer of another; UserError: there is none."""
    store, samples = loaded.store, write_samples(loaded.behaviour, kind)
    (position,) = thought_end(store)
    locus = replace(direction.locus, position=position)
    fitted = None if samples is None else fit_write(store.read, locus, kind, samples, store.layers)
    if fitted is None:
        raise UserError(f"steer.at: no {kind} direction can be fitted at the thought's end")
    return fitted


def opening_directions(loaded: LoadedRun, locus: Locus) -> tuple[Direction, ...]:
    """Return an orthonormal basis of refused minus answered benign training means of categories with enough."""
    corpus, did = loaded.corpus, loaded.behaviour
    X = loaded.store.read(locus.layer, set_at(locus.position)).astype(np.float64)
    training = corpus.benign & corpus.within("train")
    refused, answered = training & did.declined("normative"), training & did.answered
    name = np.array([prompt.category or "" for prompt in corpus.prompts], dtype=object)
    differences = dict[str, np.ndarray]()
    for one in sorted(set(name[training].tolist()) - {""}):
        over, open_ = refused & (name == one), answered & (name == one)
        if min(over.sum(), open_.sum()) >= MIN_BASELINE:
            differences[one] = X[over].mean(axis=0) - X[open_].mean(axis=0)
    if not differences:
        return ()
    basis = orthonormal(np.stack([vector / np.linalg.norm(vector) for vector in differences.values()]))
    made = []
    for i, vector in enumerate(basis):
        along = X @ vector
        on, off = float(along[refused].mean()), float(along[answered].mean())
        about: Provenance = {"categories": ", ".join(differences)}
        made.append(Direction(f"over_refusal_{i}", vector.astype(np.float32), locus, on, off, about))
    return tuple(made)


def orthonormal(vectors: Float[np.ndarray, "k d_model"]) -> Float[np.ndarray, "rank d_model"]:
    """Return an orthonormal basis of unit vectors, without singular values below `SAME` of the largest."""
    _, size, basis = np.linalg.svd(vectors, full_matrices=False)
    return basis[size > SAME * size[0]]


def either_samples(behaviour: Behaviour) -> WriteSamples | None:
    """Join the samples of both write directions, each in its own strata; None where the model never declines."""
    by_kind = [(kind, samples) for kind in KINDS if (samples := write_samples(behaviour, kind))]
    if not by_kind:
        return None
    strata = [f"{kind}/{name}" for kind, samples in by_kind for name in samples.strata]
    rows = np.concatenate([samples.rows for _, samples in by_kind])
    return WriteSamples(
        rows,
        np.concatenate([samples.declined for _, samples in by_kind]),
        np.array(strata, dtype=object),
        behaviour.corpus.groups_among(rows),
        all(samples.within_label for _, samples in by_kind),
    )


def either_writers(inputs: RunInputs, writers: Mapping[Kind, Writer]) -> list[Writer]:
    """Return candidate writers of one dial: at each locus, opening what the normative one does, or all openings.

    There are none where the model declines in one way: its dial is the only one that moves a knob of the model.
    """
    config = inputs.config.steer
    if not config.one_dial or len(writers) < len(KINDS):
        return []
    biases = [writer.actuator for writer in writers.values() if isinstance(writer.actuator, OnsetBias)]
    if len(biases) == 1 or SAYS in [bias.strength for bias in biases]:  # the epistemic dial writes what is not its own
        return []
    samples = either_samples(inputs.behaviour)
    if biases:
        return [onset_bias_writer(config, list(dict.fromkeys(prefix for bias in biases for prefix in bias.prefixes)))]
    if samples is None:
        return []
    later, made = inputs.store.layers if config.layers == "later" else (), []
    openings = {writer.direction.locus: writer.opening for writer in writers.values() if writer.direction}
    for locus, opening in openings.items():
        if (direction := fit_write(inputs.store.read, locus, "normative", samples, later)) is not None:
            writer = direction_writer(config, replace(direction, name=f"{EITHER}_write"))
            made.append(replace(writer, opening=opening))
    return made


def direction_writer(config: SteerConfig, direction: Direction) -> Writer:
    """Return a writer along a direction with the configured actuator."""
    return Writer(direction, _actuator(config), config.steps, config.layers == "later")


def onset_bias_writer(config: SteerConfig, prefixes: Sequence[TokenIds]) -> Writer:
    """Return a writer that biases openings; an opening that starts with another one is left out."""
    kept = [p for p in prefixes if not any(p[:k] in prefixes for k in range(1, len(p)))]
    return Writer(None, _actuator(config, prefixes=tuple(kept)), config.steps)


def _actuator(config: SteerConfig, **more: tuple[TokenIds, ...]) -> Actuator:
    strength = {} if config.strength is None else {"strength": config.strength}
    return actuator_of(ActuatorRecord.model_validate({"name": config.actuator} | strength | more))


def _openings(inputs: RunInputs) -> dict[Kind, tuple[TokenIds, ...]]:
    """Return the learned openings of each way of declining that the model shows often enough."""
    onsets = learned_onsets(inputs)
    learned_on = inputs.corpus.rated & inputs.corpus.within("train", "validation")
    lacking: dict[Kind, str] = {}
    for kind in KINDS:
        n = int(np.sum(inputs.behaviour.declined(kind) & learned_on))
        seldom = f"the model does not {ACTION_OF[kind]} often enough ({n} times on train and validation)"
        lacking[kind] = seldom if n < MIN_BASELINE else onsets.lacking(ACTION_OF[kind])
        if onsets.thinking > MOSTLY:
            lacking[kind] = "the model thinks first, and openings are those of its answers"
    if all(lacking.values()):
        raise UserError(
            f"steer.actuator is onset_bias, but {'; '.join(lacking.values())}; use affine, which needs no openings"
        )
    return {kind: onsets.prefixes[ACTION_OF[kind]] for kind in KINDS if not lacking[kind]}
