"""Cosines, principal angles, transfer and cross-erasure between the run's contrast directions, at every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.probing.geometry_results import GeometryTables, ReadWriteRow
from experiments.probing.read_probes import ReadProbe, StoredLoci
from experiments.probing.write_directions import WriteFitter
from experiments.run.behaviour import Kind, write_samples
from experiments.run.inputs import RunInputs
from probes.contrast import Contrast
from probes.direction import Direction, cosine
from probes.geometry.locus_geometry import LocusGeometry, geometry_at
from probes.means import difference_in_means, same_means
from probes.statistics.permutation import permutation_p
from probes.statistics.seeds import named_rng

N_PERMUTED = 199
TABLES = ("cosines", "angles", "transfers", "erasures")


def geometry_tables(
    inputs: RunInputs,
    read_probes: Mapping[str, ReadProbe],
    chosen: Mapping[Kind, Direction | None],
    fitted: Mapping[Kind, Sequence[Direction]],
) -> GeometryTables:
    """Compare label contrasts pairwise: cosines, angles, transfer, cross-erasure; one row for each locus and pair.

    Measured at every layer of the store, at the positions at which a probe or a write direction was chosen and that all
    prompts of all contrasts have. A locus at which the two classes of a contrast have the same mean has no rows.

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
    tables = [found.tables() for found in measured]
    rows_of = {name: [row for table in tables for row in table[name]] for name in TABLES}
    return GeometryTables.model_validate(
        rows_of | {"read_against_write": read_against_write(inputs, read_probes, fitted)}
    )


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
