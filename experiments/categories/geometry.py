"""Cosines between categories' directions, and how well a probe of one category separates another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from experiments.categories.members import Category
from experiments.categories.results import CategoryGeometry, PairGeometry
from experiments.responses.loaded_run import LoadedRun
from probes.contrast import Contrast
from probes.geometry.cosines import compare_directions
from probes.geometry.fitted_direction import fit_with_null
from probes.means import difference_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from probes.statistics.metrics import average, discrimination

READ_POSITION = "inst_last"  # where what is asked is read (arXiv 2507.11878)


def geometry(
    loaded: LoadedRun,
    categories: Sequence[Category],
    folds: np.ndarray,
    layer: int,
    position: str,
    *,
    by: Literal["behaviour", "label"],
) -> CategoryGeometry | None:
    """Compare categories' directions at one locus; None if it is not stored or some prompt lacks the position.

    Args:
        folds: the fold of each prompt; a probe is tested on folds that it was not fitted on.
        by: declined against answered, or all declinable prompts of the category against all benign ones.
    """
    store = loaded.store
    if layer not in store.layers or position not in store.positions:
        return None
    chosen = {c.name: _samples(loaded, c, by) for c in categories}
    used = np.unique(np.concatenate([rows for rows, _ in chosen.values()]))
    if not store.present[store.positions.index(position)][used].all():
        return None
    X = store.read(layer, position)
    fitted = {
        name: fit_with_null(X, _contrast(loaded, name, rows, y), seed=loaded.config.seed)
        for name, (rows, y) in chosen.items()
    }
    pairs = {}
    for a, b in combinations(fitted, 2):
        comparison = compare_directions(fitted[a], fitted[b], alpha=loaded.config.dissociate.alpha)
        p = float(comparison.p)
        pairs[f"{a} and {b}"] = PairGeometry(
            cosine=comparison.noise_free, fitted_cosine=comparison.fitted, p_permuted=None if np.isnan(p) else p
        )
    auroc = {a: {b: _transferred(loaded, X, chosen[a], chosen[b], folds) for b in chosen} for a in chosen}
    return CategoryGeometry(layer=layer, position=position, pairs=pairs, probe_auroc=auroc)


def _samples(loaded: LoadedRun, category: Category, by: str) -> tuple[np.ndarray, np.ndarray]:
    if by == "behaviour":
        return category.rows, category.declined
    corpus = loaded.corpus
    inside = np.array([prompt.category == category.name for prompt in corpus.prompts])
    label = corpus.harmful if category.kind == "normative" else corpus.uncertain
    rows = np.flatnonzero(inside & (label | corpus.benign))
    return rows, label[rows]


def _contrast(loaded: LoadedRun, name: str, rows: np.ndarray, y: np.ndarray) -> Contrast:
    return Contrast(name, rows, y, loaded.corpus.groups[rows], np.full(len(rows), "train", dtype=object))


def _transferred(
    loaded: LoadedRun,
    X: np.ndarray,
    fitted_on: tuple[np.ndarray, np.ndarray],
    tested_on: tuple[np.ndarray, np.ndarray],
    folds: np.ndarray,
) -> Estimate:
    """Return the AUROC on one category of the difference in means of another, averaged over held-out folds."""
    (rows, y), (others, truth) = fitted_on, tested_on
    aurocs = []
    for fold in range(int(folds.max()) + 1):
        train, test = _outside(loaded, rows, folds, fold), ~_outside(loaded, others, folds, fold)
        if len(set(y[train].tolist())) == 2 == len(set(truth[test].tolist())):
            direction = difference_in_means(X[rows[train]], y[train])
            scores = X[others[test]].astype(np.float64) @ direction
            aurocs.append(discrimination(truth[test], scores, loaded.corpus.groups[others[test]]))
    return average(aurocs).auroc.counted(len(others)) if aurocs else NO_ESTIMATE


def _outside(loaded: LoadedRun, rows: np.ndarray, folds: np.ndarray, fold: int) -> np.ndarray:
    """Return which rows are outside a fold; a prompt without one goes with its group, or else is outside."""
    inside = set(loaded.corpus.groups[folds == fold].tolist())
    return np.array([group not in inside for group in loaded.corpus.groups[rows].tolist()], dtype=bool)
