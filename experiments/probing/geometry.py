"""Geometry of the contrasts at every layer: cosines, angles, transfer, erasure; where over-refused prompts lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.probing.geometry_results import BoundaryRow, GeometryByLocus, ReadWriteRow
from experiments.probing.read_probes import ReadProbe, StoredLoci
from experiments.probing.write_directions import WriteFitter
from experiments.run.behaviour import Kind, write_samples
from experiments.run.inputs import RunInputs
from probes.contrast import Contrast
from probes.direction import Direction, cosine
from probes.geometry.boundary import place_between
from probes.geometry.locus_geometry import LocusGeometry, geometry_at
from probes.means import difference_in_means, same_means
from probes.statistics.permutation import permutation_p
from probes.statistics.seeds import named_rng
from scoring.actions import DECLINED

N_PERMUTED = 199


def measured_geometry(
    inputs: RunInputs,
    read_probes: Mapping[str, ReadProbe],
    chosen: Mapping[Kind, Direction | None],
    fitted: Mapping[Kind, Sequence[Direction]],
) -> GeometryByLocus:
    """Compare label contrasts pairwise: cosines, angles, transfer, cross-erasure.

    Measured at every layer of the store, at the positions at which a probe or a write direction was chosen and that all
    prompts of all contrasts have. A locus at which the two classes of a contrast have the same mean is left out.

    Args:
        chosen: the write directions; their positions are measured too.
        fitted: write directions to compare with the read direction, one for each locus.
    """
    store, contrasts = inputs.store, [read_probe.contrast for read_probe in read_probes.values()]
    rows = np.unique(np.concatenate([c.rows for c in contrasts]))
    wanted = {r.chosen.position for r in read_probes.values()} | {d.locus.position for d in chosen.values() if d}
    present = [p for i, p in enumerate(store.positions) if p in wanted and store.present[i][rows].all()]
    measured: list[LocusGeometry] = []
    loci = StoredLoci(store, store.layers, present)
    with inputs.reporter.task("geometry", len(store.layers) * len(present)) as advance:
        for i, layer in enumerate(store.layers):
            for j, position in enumerate(present):
                X = loci[i, j]
                if not any(_alike(X, contrast) for contrast in contrasts):
                    measured.append(geometry_at(X, layer, position, contrasts, n=N_PERMUTED, seed=inputs.config.seed))
                advance(1)
    against = read_against_write(inputs, read_probes, fitted)
    return GeometryByLocus(loci=tuple(measured), read_against_write=tuple(against))


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
            X = inputs.store.read(direction.locus.layer, direction.locus.position)
            if _alike(X, contrast):
                continue
            read = _read(X, contrast)
            observed = cosine(read, direction.vector)
            null = np.array([abs(cosine(read, d.vector)) for d in drawn if d.locus == direction.locus])
            p, n = float(permutation_p(null, abs(observed), labellings=samples.n_labellings)), len(null)
            layer, position = direction.locus.layer, direction.locus.position
            table.append(ReadWriteRow(kind=kind, layer=layer, position=position, cosine=observed, p=p, n_permuted=n))
    return table


def _read(X: np.ndarray, contrast: Contrast) -> np.ndarray:
    train = contrast.within("train")
    return difference_in_means(X[contrast.rows[train]], contrast.y[train])


def _alike(X: np.ndarray, contrast: Contrast) -> bool:
    train = contrast.within("train")
    return same_means(X[contrast.rows[train]], contrast.y[train])


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
    places = []
    for layer in store.layers:
        rng = named_rng(inputs.config.seed, "blocks of the boundary distance")
        place = place_between(store.read(layer, position)[rows], kind[rows], corpus.groups[rows], rng)
        if place is not None:
            n = int((kind[rows] == 2).sum())
            places.append(BoundaryRow.of(place.counted(n), layer=layer, position=position))
    return tuple(places)
