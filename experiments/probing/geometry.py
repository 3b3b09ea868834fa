"""Geometry of the contrasts at every layer, the place of over-refused prompts, and independence under ablation.

Directions λ and μ are representationally independent (Wollschläger et al., arXiv 2502.17420) if ablating μ leaves
cos(x_l, λ) unchanged at every layer l from the ablated one on, and the reverse; x_l is the stream of the last prompt
token. No change is exactly zero, and a cosine changes with the stream's norm too. So the change of the projection λ·x_l
is measured as well, and compared with that along μ itself, and with those of directions fitted on permuted labels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import einops
import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from experiments.probing.read_probes import ReadProbe
from experiments.probing.results import BoundaryRow, GeometryByLocus, Independence, ReadWriteRow, StreamChange
from experiments.probing.write_directions import WriteFitter
from experiments.responses.batched_edits import RepeatedPrompts, Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from experiments.run.inputs import RunInputs
from extract.model.chat_model import ChatModel
from extract.model.continuation import last_streams
from extract.model.edit import site
from extract.prompts.prompt import LABELS
from probes.contrast import Contrast
from probes.direction import Direction, cosine
from probes.geometry.boundary import place_between
from probes.geometry.locus_geometry import LocusGeometry, geometry_at
from probes.means import difference_in_means, same_means
from probes.statistics.intervals import Estimate, grouped_mean
from probes.statistics.permutation import MIN_LABELLINGS, permutation_p
from probes.statistics.seeds import named_rng
from steering.ablation import ablation

N_PERMUTED = 199
N_NULL = 49  # permuted-label directions of the null of independence
N_PER_LABEL = 24  # held-out prompts of each label for independence


def measured_geometry(
    inputs: RunInputs,
    read_probes: Mapping[str, ReadProbe],
    chosen: Mapping[Kind, Direction | None],
    fitted: Mapping[Kind, Sequence[Direction]],
) -> GeometryByLocus:
    """Compare label contrasts pairwise (cosines, angles, transfer, cross-erasure), and read with write directions.

    Measured at every layer of the store, at the positions at which a probe or a write direction was chosen and that all
    prompts of all contrasts have. A locus at which the two classes of a contrast have the same mean is left out.
    """
    store, contrasts = inputs.reading.store, [read_probe.contrast for read_probe in read_probes.values()]
    rows = np.unique(np.concatenate([c.rows for c in contrasts]))
    wanted = {r.chosen.position for r in read_probes.values()} | {d.locus.position for d in chosen.values() if d}
    present = [p for i, p in enumerate(store.positions) if p in wanted and store.present[i][rows].all()]
    measured: list[LocusGeometry] = []
    with inputs.reporter.task("geometry", len(store.layers) * len(present)) as advance:
        for layer, position in itertools.product(store.layers, present):
            X = store.read(layer, position)
            if not any(same_means(*_trained(X, contrast)) for contrast in contrasts):
                measured.append(geometry_at(X, layer, position, contrasts, n=N_PERMUTED, seed=inputs.config.seed))
            advance(1)
    against = tuple(read_against_write(inputs, read_probes, fitted))
    return GeometryByLocus(loci=tuple(measured), read_against_write=against)


def read_against_write(
    inputs: RunInputs, read_probes: Mapping[str, ReadProbe], fitted: Mapping[Kind, Sequence[Direction]]
) -> list[ReadWriteRow]:
    """Return the cosine of read and write directions at the loci of fitted write directions, with its null.

    The null keeps the read direction and permutes the behaviour of whole groups within strata: it gives the cosines
    expected if, given the label, only chance decided which prompts are declined (two-sided p).
    """
    table = []
    for kind, directions in fitted.items():
        samples, contrast = write_samples(inputs.behaviour, kind), read_probes[kind].contrast
        if samples is None:
            continue
        rng = named_rng(inputs.config.seed, "contrast geometry", kind)
        loci = [(d.locus.layer, d.locus.position) for d in directions]
        fitter = WriteFitter(inputs.store.read, inputs.store.site, loci, kind, samples)
        drawn = [d for _ in range(N_PERMUTED) for d in fitter.fit(samples.permuted(rng))]
        for direction in directions:
            layer, position = direction.locus.layer, direction.locus.position
            trained = _trained(inputs.reading.store.read(layer, position), contrast)
            if same_means(*trained):
                continue
            read = difference_in_means(*trained)
            observed = cosine(read, direction.vector)
            null = np.array([abs(cosine(read, d.vector)) for d in drawn if d.locus == direction.locus])
            p, n = float(permutation_p(null, abs(observed), labellings=samples.n_labellings)), len(null)
            table.append(ReadWriteRow(kind=kind, layer=layer, position=position, cosine=observed, p=p, n_permuted=n))
    return table


def _trained(X: np.ndarray, contrast: Contrast) -> tuple[np.ndarray, np.ndarray]:
    train = contrast.within("train")
    train = train[np.isfinite(X[contrast.rows[train], 0])]  # some prompts have no such token
    return X[contrast.rows[train]], contrast.y[train]


def over_refused_places(inputs: RunInputs, position: str, category: str | None = None) -> tuple[BoundaryRow, ...]:
    """Return a row for each layer; none where too few are harmful, or benign and declined, or answered.

    Prompts of all parts count: nothing is chosen, and no product of two means has a prompt in both.
    """
    corpus, behaviour, store = inputs.corpus, inputs.behaviour, inputs.store
    over_refused = corpus.benign & behaviour.declining
    kind = np.select([corpus.benign & behaviour.answered, corpus.harmful, over_refused], [0, 1, 2], -1)
    inside = np.array([category is None or prompt.category == category for prompt in corpus.prompts])
    rows = np.flatnonzero(inside & (kind >= 0) & store.present[store.positions.index(position)])
    places = []
    for layer in store.layers:
        rng = named_rng(inputs.config.seed, "blocks of the boundary distance")
        place = place_between(store.read(layer, position)[rows], kind[rows], corpus.groups[rows], rng)
        if place is not None:
            n = int((kind[rows] == 2).sum())
            places.append(BoundaryRow.of(place.counted(n), layer=layer, position=position))
    return tuple(places)


def measured_independence(loaded: LoadedRun, chosen: Mapping[Kind, Direction]) -> dict[str, Independence] | None:
    """Ablate each chosen write direction and measure the stream along the other, on test prompts; None without two."""
    if len(chosen) < len(KINDS):
        return None
    rng, corpus = named_rng(loaded.config.seed, "independence"), loaded.corpus
    held_out = [np.flatnonzero(corpus.labelled(label) & corpus.within("test")) for label in LABELS]
    rows = np.concatenate([np.sort(rng.permutation(of_label)[:N_PER_LABEL]) for of_label in held_out])
    prompts, record = RepeatedPrompts(loaded.model, [loaded.rendered[i] for i in rows]), {}
    with loaded.reporter.task("independence under ablation", len(KINDS)) as advance:
        for one, other in (KINDS, KINDS[::-1]):
            null, samples = list[Direction](), write_samples(loaded.behaviour, one)
            if samples is not None and samples.n_labellings >= MIN_LABELLINGS:
                at = [(chosen[one].locus.layer, chosen[one].locus.position)]
                fitter = WriteFitter(loaded.store.read, loaded.store.site, at, one, samples)
                null = [direction for _ in range(N_NULL) for direction in fitter.fit(samples.permuted(rng))]
            record[f"ablate_{one}_watch_{other}"] = independence(
                loaded.model, prompts, corpus.groups[rows], chosen[one], chosen[other], null
            )
            advance(1)
    return record


def independence(
    model: ChatModel,
    prompts: RepeatedPrompts,
    groups: Shaped[np.ndarray, " prompts"],
    ablated: Direction,
    watched: Direction,
    null: Sequence[Direction],
) -> Independence:
    """Measure the change that ablating one direction makes to the stream along another; intervals are over groups.

    The mean absolute change of `cosine` and `projection` is averaged over the layers from the ablated one on, and given
    by layer; null directions are fitted at the ablated one's locus on permuted labels.
    """
    trials = [ablation(direction) for direction in (ablated, *null)]
    layers = range(ablated.locus.layer, model.n_layers)
    changes = stream_changes(model, prompts, trials, (watched, ablated), layers)
    moved = {
        measure: StreamChange(
            **_against_null(change.mean(axis=1), groups),
            share=float(change[0].mean() / own[0].mean()) if own[0].any() else None,
            by_layer=tuple(
                StreamChange(layer=layer, **_against_null(change[:, i], groups)) for i, layer in enumerate(layers)
            ),
        )
        for measure, (change, own) in changes.items()
    }
    return Independence(ablated=ablated.locus, watched=watched.locus, n=prompts.n_rows, n_null=len(null), **moved)


def stream_changes(
    model: ChatModel,
    prompts: RepeatedPrompts,
    trials: Sequence[Trial],
    watched: Sequence[Direction],
    layers: Sequence[int],
) -> dict[str, Float[np.ndarray, "watched trials layers prompts"]]:
    """Return absolute changes of `cosine` and `projection` along directions of one site under each trial."""
    where = site(watched[0].locus.site)
    R = torch.tensor(np.stack([direction.vector for direction in watched]), device=model.device)
    changed: dict[int, torch.Tensor] = {}
    before = _along(last_streams(model, prompts.once, where, layers), R).movedim(2, 0)
    for batch in prompts.passes(trials, 0):
        after = _along(prompts.last_streams(batch, where, layers), R).movedim(2, 0)
        changed.update(zip(batch.trials, (batch.split(after) - before).abs(), strict=True))
    changes = torch.stack([changed[i] for i in range(len(trials))]).cpu().double().numpy()
    cosine, projection = einops.rearrange(changes, "trials rows two layers watched -> two watched trials layers rows")
    gaps = np.array([direction.mean_positive - direction.mean_negative for direction in watched])
    return {"cosine": cosine, "projection": projection / np.abs(gaps)[:, None, None, None]}


def _along(
    streams: Float[Tensor, "layers rows d_model"], R: Float[Tensor, "watched d_model"]
) -> Float[Tensor, "2 layers rows watched"]:
    """Return the cosine and the projection of each stream with each direction."""
    projection = streams @ R.T
    norm = streams.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.stack([projection / norm, projection])


def _against_null(change: np.ndarray, groups: np.ndarray) -> dict[str, Estimate | float | None]:
    """Summarise changes (n_trials, n_prompts): the first trial is the ablation, the others are the null."""
    interval = grouped_mean(change[0], groups, least=0.0)
    null = change[1:].mean(axis=1)
    return {
        "change": interval,
        "null_95th_percentile": float(np.quantile(null, 0.95)) if len(null) else None,
        "p_null": float(permutation_p(null, interval.estimate)) if len(null) else None,
    }
