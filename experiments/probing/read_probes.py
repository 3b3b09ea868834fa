"""Read probes: how well linear probes read a prompt's label from the residual stream, at every layer and position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from experiments.probing.results import GridRow, SiteRecord
from experiments.responses.loaded_run import LoadedRun
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from extract.atomic_write import atomic_path
from extract.capture_spec import is_generated
from extract.errors import UserError
from extract.in_memory import Activations
from extract.store.activation_store import ActivationStore
from probes.contrast import Contrast
from probes.direction import Direction, Locus
from probes.grid.baselines import bag_of_words_auroc, length_auroc
from probes.grid.logistic import fit_platt
from probes.grid.nulls import control_auroc, null_auroc
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus
from probes.means import difference_in_means, unit
from probes.statistics.metrics import brier, expected_calibration_error
from probes.statistics.permutation import label_permutation_p

INTENT = "intent"  # harmful against benign requests with a trigger word, which no word list can separate
CLASSES = {  # positive (declining) and negative class of each contrast
    "normative": ("harmful", "benign"),
    "epistemic": ("uncertain", "known twin"),
    INTENT: ("harmful", "benign with a trigger word"),
}


@dataclass(frozen=True)
class ReadProbe:
    """The grid of one contrast, and the probe chosen on validation prompts."""

    contrast: Contrast
    rows: tuple[GridRow, ...]
    chosen: SiteRecord


@dataclass(frozen=True)
class StoredLoci:
    """The activations of a store, or of memory, indexed by (layer index, position index)."""

    store: ActivationStore | Activations
    layers: Sequence[int]
    positions: Sequence[str]

    def __getitem__(self, key: tuple[int, int], /) -> Float[np.ndarray, "prompts d_model"]:
        return self.store.read(self.layers[key[0]], self.positions[key[1]])


def label_contrasts(corpus: Corpus) -> list[Contrast]:
    """Return the label contrasts that these prompts allow: intent takes 3 benign requests with a trigger a part."""
    contrasts = [
        contrast_of(corpus, "normative", corpus.harmful, corpus.requests),
        contrast_of(corpus, "epistemic", corpus.uncertain, corpus.twins),
    ]
    intent = contrast_of(corpus, INTENT, corpus.harmful, corpus.requests & corpus.trigger)
    enough = all((~intent.y[intent.within(part)]).sum() >= 3 for part in ("train", "validation", "test"))
    return [*contrasts, intent] if enough else contrasts


def check_folds(corpus: Corpus, seed: int) -> None:
    """Raise UserError, before any model is loaded, if a part of the prompts is too small for a contrast's folds."""
    try:
        ProbeGrid.held_out(label_contrasts(corpus), seed=seed)
    except ValueError as error:
        raise UserError(str(error)) from error


def contrast_of(
    corpus: Corpus, name: str, positive: Bool[np.ndarray, " prompts"], negative: Bool[np.ndarray, " prompts"]
) -> Contrast:
    """Build a contrast from two masks over the corpus."""
    rows = np.flatnonzero(positive | negative)
    return Contrast(name, rows, positive[rows], corpus.groups[rows], corpus.part[rows])


def fit_grid(
    loaded: LoadedRun, contrasts: Sequence[Contrast], layers: Sequence[int], positions: Sequence[str], what: str
) -> tuple[ProbeGrid, list[LocusScores]]:
    """Fit probes at every locus for some contrasts, each at the positions that all its prompts have.

    UserError: a part of the prompts is too small for a contrast, or activations are NaN or infinite.
    """
    store = loaded.store
    present = np.array([store.present[store.positions.index(p)] for p in positions])
    ids = [prompt.id for prompt in loaded.prompts]
    try:
        grid = ProbeGrid.held_out(contrasts, seed=loaded.config.seed, names=ids)
        with loaded.reporter.task(what, len(layers) * len(positions)) as advance:
            loci = StoredLoci(store, layers, positions)
            scored = list(grid.scores_by_locus(loci, layers, positions, present=present, progress=lambda: advance(1)))
    except ValueError as error:
        raise UserError(str(error)) from error
    return grid, scored


def read_grid(loaded: LoadedRun) -> dict[str, ReadProbe]:
    """Fit probes at every locus of the store for all label contrasts, in one pass over the store.

    `loaded` is a run's `reading`: labels are known of every prompt, answered or not.
    """
    store, contrasts = loaded.store, label_contrasts(loaded.corpus)
    positions = [p for p in store.positions if not p.startswith("response_")]
    grid, scored = fit_grid(loaded, contrasts, store.layers, positions, "probing")
    return {
        c.name: _fit_chosen(loaded, grid, c, [locus for locus in scored if locus.contrast == c.name]) for c in contrasts
    }


def _fit_chosen(inputs: RunInputs, grid: ProbeGrid, contrast: Contrast, loci: Sequence[LocusScores]) -> ReadProbe:
    prompt = [locus for locus in loci if not is_generated(locus.position)]  # a dial reads before the model speaks
    chosen, seed, site = choose_locus(prompt), inputs.config.seed, inputs.store.site
    rows = [_grid_row(locus, kind, site, locus is chosen) for locus in loci for kind in locus.scores]
    row = next(row for row in rows if row.chosen)
    activations = inputs.store.read(chosen.layer, chosen.position)
    C = float(chosen.scores[LOGISTIC].C[0])
    probe = grid.fit(activations, contrast.name, C=C)
    X, y, groups = activations[contrast.rows], contrast.y, contrast.groups
    train, test = contrast.within("train"), contrast.within("test")
    score = probe.decision_function(X)
    ece, squared = calibration_error(score, y, contrast.within("calibration"), test)
    fitted = (X[train], y[train], X[test], y[test])
    categories = np.array([inputs.prompts[row].category or "" for row in contrast.rows])
    texts = [" ".join(m["content"] for m in inputs.prompts[row].messages) for row in contrast.rows]
    words = bag_of_words_auroc(texts, y, train, test)
    control = control_auroc(X[train], categories[train], X[test], categories[test], C=C, seed=seed)
    within = {"groups": groups[train], "test_groups": groups[test], "seed": seed}
    record = SiteRecord(
        **row.model_dump(),
        ece=ece,
        brier=squared,
        bag_of_words_auroc=words,
        length_auroc=length_auroc(texts, y, train, test),
        beats_bag_of_words=row.auroc_ci[0] > words,
        p_permutation=label_permutation_p(y[test], score[test], groups[test], seed=seed),
        control_auroc=None if np.isnan(control) else control,
        selectivity=None if np.isnan(control) else row.auroc - control,
        refitted_on_permuted_labels=null_auroc(*fitted, C=C, **within),
        difference_in_means=null_auroc(*fitted, **within),
    )
    return ReadProbe(contrast, tuple(rows), record)


def _grid_row(locus: LocusScores, probe: str, site: str, chosen: bool) -> GridRow:
    score = locus.scores[probe]
    auroc, low, high = score.test.auroc.limits()
    return GridRow(
        contrast=locus.contrast,
        site=site,
        layer=locus.layer,
        position=locus.position,
        probe=probe,
        chosen=chosen and probe == LOGISTIC,
        C=None if np.isnan(score.C[0]) else float(score.C[0]),
        validation_auroc=float(score.validation[0]),
        validation_d_prime=float(score.separation[0]),
        auroc=auroc,
        auroc_ci=(low, high),
        **{name: value for name, value in vars(score.test).items() if name != "auroc"},
    )


def best_loci(rows: Iterable[GridRow], n: int = 10) -> list[GridRow]:
    """Return the n loci whose logistic probe has the highest validation AUROC, ties by d'; test prompts have no say."""
    logistic = [row for row in rows if row.probe == LOGISTIC]
    return sorted(logistic, key=lambda row: (row.validation_auroc, row.validation_d_prime), reverse=True)[:n]


def calibration_error(
    score: np.ndarray, y: np.ndarray, calibration: np.ndarray, test: np.ndarray
) -> tuple[float | None, float | None]:
    """Return calibration error and Brier score on test prompts, with Platt scaling fitted on calibration prompts."""
    if y[calibration].all() or not y[calibration].any():
        return None, None
    probability = fit_platt(score[calibration], y[calibration]).probability(score[test])
    return expected_calibration_error(y[test], probability), brier(y[test], probability)


def read_direction(read_probe: ReadProbe, activations: Float[np.ndarray, "prompts d_model"]) -> Direction:
    """Return the difference-in-means read direction at the chosen locus, from all prompts' activations there."""
    contrast, chosen = read_probe.contrast, read_probe.chosen
    train = contrast.within("train")
    X, y = activations[contrast.rows][train], contrast.y[train]
    vector = unit(difference_in_means(X, y))
    along = X.astype(np.float64) @ vector
    positive, negative = CLASSES[contrast.name]
    return Direction(
        name=f"{contrast.name}_read",
        vector=vector,
        locus=Locus(chosen.site, chosen.layer, chosen.position),
        mean_positive=float(along[y].mean()),
        mean_negative=float(along[~y].mean()),
        provenance={
            "fitted_on": "labels",
            "estimator": "difference in means",
            "positive_class": positive,
            "negative_class": negative,
            "n": len(train),
            "n_positive": int(y.sum()),
            "n_negative": int((~y).sum()),
        },
    )


def write_parquet(rows: Iterable[dict[str, object]], path: Path) -> None:
    """Write rows as Parquet, atomically."""
    import pyarrow
    import pyarrow.parquet

    with atomic_path(path) as partial:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), partial)
