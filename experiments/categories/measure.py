"""Measures categories of declining on a model: ablations on held-out folds, and the geometry of their directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from experiments.categories.fits import FoldFit, fit_without
from experiments.categories.members import SETS, Category, DeclineSet, find_categories, folds_of
from experiments.categories.results import CategoryEffects, CategoryGeometry, FoldRecord, PairGeometry, SetEffects
from experiments.categories.tradeoff import measure_tradeoff
from experiments.probing.geometry import over_refused_places
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import WRITE_POSITION
from experiments.run.outcomes import Key, Outcomes, joined, write_outcomes
from probes.contrast import Contrast
from probes.geometry.cosines import compare_directions
from probes.geometry.fitted_direction import fit_with_null
from probes.means import difference_in_means
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from probes.statistics.metrics import average, discrimination
from steering.ablation import ablation

READ_POSITION = "inst_last"  # where what is asked is read (arXiv 2507.11878)
Samples = tuple[Int[np.ndarray, " samples"], Bool[np.ndarray, " samples"]]  # rows of the run, and which are positive


def measure_categories(loaded: LoadedRun) -> None:
    """Write stages/category_effects.json and the outcomes; neither depends on the verdict's margin and level."""
    effects, outcomes = dict[str, SetEffects](), dict[Key, Outcomes]()
    for declines in SETS:
        effects[declines], measured = measure_set(loaded, declines)
        outcomes |= measured
    path = loaded.file("outcomes.parquet/category_effects.parquet")
    write_outcomes(path, [prompt.id for prompt in loaded.prompts], outcomes)
    names = sorted({prompt.category for prompt in loaded.prompts if prompt.category})
    places = {name: over_refused_places(loaded, WRITE_POSITION, name) for name in names}  # none of those with too few
    measured_at = {name: by_layer for name, by_layer in places.items() if by_layer}
    CategoryEffects(**effects, places=measured_at).write(loaded.file("stages/category_effects.json"))


def measure_set(loaded: LoadedRun, declines: DeclineSet) -> tuple[SetEffects, dict[Key, Outcomes]]:
    """Measure all categories of one set; intervention `ablate A`, `control A` (on A's decliners alone) or `first k`."""
    settings = loaded.config.categories
    least = settings.least_over_refused if declines == "over_refusal" else settings.least
    categories, missing = find_categories(loaded.behaviour, declines, least)
    if settings.only:
        categories = [category for category in categories if category.name in settings.only]
    if len(categories) < 2:
        alone = {c.name: "no other category to compare it with" for c in categories}
        return SetEffects(missing=missing | alone), {}
    folds = folds_of(loaded.corpus, categories, settings.folds, loaded.config.seed)
    with loaded.reporter.task(f"directions of {len(categories)} categories ({declines})", settings.folds) as advance:
        fits = []
        for fold in range(settings.folds):
            fits.append(fit_without(loaded, categories, folds, fold))
            advance(1)
    outcomes = _ablated(loaded, declines, categories, folds, fits)
    layer = Counter(fit.layer for fit in fits).most_common(1)[0][0]
    angles, read = tuple[float, ...](), None
    if declines == "over_refusal":  # refused and answered prompts of one label: nothing to read but the behaviour
        angles, lowered = measure_tradeoff(loaded, categories, folds, fits)
        outcomes |= lowered
    else:
        read = geometry(loaded, categories, folds, layer, READ_POSITION, by="label")
    effects = SetEffects(
        missing=missing,
        categories=tuple(category.name for category in categories),
        folds=tuple(FoldRecord(layer=f.layer, within_label=f.within_label) for f in fits),
        write_directions=geometry(loaded, categories, folds, layer, WRITE_POSITION, by="behaviour"),
        read_directions=read,
        angles=angles,
    )
    return effects, outcomes


def _ablated(
    loaded: LoadedRun, declines: DeclineSet, categories: Sequence[Category], folds: np.ndarray, fits: Sequence[FoldFit]
) -> dict[Key, Outcomes]:
    """Answer every decliner once under each ablation of the fold that holds it."""
    decliners = np.sort(np.concatenate([category.decliners for category in categories]))
    variant, by_fold = loaded.config.dissociate.variant, []
    n = (2 * len(categories) + 1) * len(decliners)
    with loaded.reporter.task(f"ablations on held-out decliners ({declines})", n) as advance:
        for fold, fit in enumerate(fits):
            under = loaded.completer.outcomes(decliners[folds[decliners] == fold], fit.edits(variant), advance)
            for category in categories:
                rows = category.decliners[folds[category.decliners] == fold]
                control = {f"control {category.name}": ablation(fit.control[category.name], variant)}
                under |= loaded.completer.outcomes(rows, control, advance)
            by_fold.append({(str(declines), name): of for name, of in under.items()})
    return joined(by_fold)


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
    X, groups = store.read(layer, position), loaded.corpus.groups
    fitted = {}
    for name, (rows, y) in chosen.items():
        contrast = Contrast(name, rows, y, groups[rows], np.full(len(rows), "train", dtype=object))
        fitted[name] = fit_with_null(X, contrast, seed=loaded.config.seed)
    pairs = {}
    for a, b in combinations(fitted, 2):
        comparison = compare_directions(fitted[a], fitted[b])  # at 95 %: `alpha` changes no measurement
        p = float(comparison.p)
        pairs[f"{a} and {b}"] = PairGeometry(
            cosine=comparison.noise_free, fitted_cosine=comparison.fitted, p_permuted=None if np.isnan(p) else p
        )
    auroc = {a: {b: _transferred(X, chosen[a], chosen[b], groups, folds) for b in chosen} for a in chosen}
    return CategoryGeometry(layer=layer, position=position, pairs=pairs, probe_auroc=auroc)


def _samples(loaded: LoadedRun, category: Category, by: str) -> Samples:
    corpus = loaded.corpus
    if by == "behaviour":
        samples = category.samples(corpus, np.ones(len(corpus), dtype=bool))
        return samples.rows, samples.declined
    inside = np.array([prompt.category == category.name for prompt in corpus.prompts])
    label = corpus.harmful if category.kind == "normative" else corpus.uncertain
    rows = np.flatnonzero(inside & (label | corpus.benign))
    return rows, label[rows]


def _transferred(
    X: np.ndarray, fitted_on: Samples, tested_on: Samples, groups: np.ndarray, folds: np.ndarray
) -> Estimate:
    """Return the AUROC on one category of the difference in means of another, a mean over held-out folds."""
    (rows, y), (others, truth) = fitted_on, tested_on
    aurocs = []
    for fold in range(int(folds.max()) + 1):
        held_out = groups[folds == fold]
        train, test = ~np.isin(groups[rows], held_out), np.isin(groups[others], held_out)
        if len(set(y[train].tolist())) == 2 == len(set(truth[test].tolist())):
            direction = difference_in_means(X[rows[train]], y[train])
            scores = X[others[test]].astype(np.float64) @ direction
            aurocs.append(discrimination(truth[test], scores, groups[others[test]]))
    return average(aurocs).auroc.counted(len(others)) if aurocs else NO_ESTIMATE
