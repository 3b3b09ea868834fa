"""Write directions of all categories of one set of declines, fitted without one fold of the prompts.

All are written at one layer, so that they can be compared and their span ablated: the one at which ablating each
category's direction stops the most of its validation decliners, on average over categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from experiments.categories.members import Category
from experiments.probing.stage import candidate_layers
from experiments.probing.write_directions import WriteFitter
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import WRITE_POSITION
from extract.errors import UserError
from extract.model.edit import Edit
from probes.direction import Direction, Subspace
from probes.statistics.seeds import named_rng
from scoring.actions import OPENED
from steering.ablation import ablation, subspace_ablation
from steering.ablation_variant import Variant

TIE = 0.05  # shares of stopped decliners within this are ties
MIN_VALIDATION = 4  # decliners of a category that choose the layer


@dataclass(frozen=True)
class FoldFit:
    """The directions that are tested on one fold, fitted on the other ones."""

    within_label: bool  # decliners were compared with answered prompts of their own label, where there are enough
    own: dict[str, Direction]
    control: dict[str, Direction]  # fitted on labels permuted within the category
    span: Subspace  # of all categories' directions, the one that they share most first

    @property
    def layer(self) -> int:
        return self.span.locus.layer

    def edits(self, variant: Variant) -> dict[str, list[Edit]]:
        """Return the edits of each intervention on all prompts: a category's direction, the first k of the span."""
        edits = {f"ablate {name}": ablation(direction, variant) for name, direction in self.own.items()}
        first = {f"first {k}": Subspace.of(*self.span.directions[:k]) for k in range(1, self.span.rank + 1)}
        return edits | {name: subspace_ablation(span, variant) for name, span in first.items()}


def fit_without(
    loaded: LoadedRun, categories: Sequence[Category], folds: Shaped[np.ndarray, " prompts"], fold: int
) -> FoldFit:
    """Fit all categories' directions on all folds but one; UserError if no stored layer may be written at.

    The layer is chosen by directions that are fitted without the next fold, on that fold's prompts; and so is, where
    there are both, whether decliners are compared with answered prompts of their own label or with benign ones.
    """
    layer, stopped = _choose_layer(loaded, categories, folds, fold)
    if any(category.between for category in categories):
        apart = [category.between or category for category in categories]
        other_layer, stopped_by_other = _choose_layer(loaded, apart, folds, fold)
        if stopped_by_other > stopped + TIE:
            categories, layer = apart, other_layer
    outside = (folds >= 0) & (folds != fold)
    fitters = {c.name: _fitter(loaded, c, outside, [layer]) for c in categories}
    own = {name: fitter.fit()[0] for name, fitter in fitters.items()}
    controls = {}
    for name, fitter in fitters.items():
        rng = named_rng(loaded.config.seed, "category control", name, str(fold))
        permuted = fitter.fit(fitter.samples.permuted(rng))
        controls[name] = next((d for d in permuted if d.locus == own[name].locus), own[name])
    within = any(category.within_label for category in categories)
    return FoldFit(within, own, controls, _span(loaded, categories, own, outside))


def _choose_layer(loaded: LoadedRun, categories: Sequence[Category], folds: np.ndarray, fold: int) -> tuple[int, float]:
    """Return the layer, and the share of validation decliners that is stopped there, a mean over categories."""
    validating = (fold + 1) % (int(folds.max()) + 1)
    training = (folds >= 0) & (folds != fold) & (folds != validating)
    fitted = {c.name: {d.locus.layer: d for d in _fitter(loaded, c, training).fit()} for c in categories}
    layers = sorted(set.intersection(*(set(by_layer) for by_layer in fitted.values())))
    if not layers:
        raise UserError("at no layer do all categories' declined and answered prompts have different means")
    stopped = [
        _stopped(loaded, c, [fitted[c.name][layer] for layer in layers], folds == validating) for c in categories
    ]
    place, share = choose_layer(np.array(stopped))
    return layers[place], share


def choose_layer(stopped: Float[np.ndarray, "categories layers"]) -> tuple[int, float]:
    """Return the place of the layer that all use (of alike ones the earliest) and what it stops; NaN: too few."""
    mean = np.ma.masked_invalid(stopped).mean(axis=0)
    share = np.ma.filled(mean.astype(float), 0.0)
    place = int(np.flatnonzero(share >= share.max() - TIE)[0])
    return place, float(share[place])


def _fitter(
    loaded: LoadedRun, category: Category, inside: Bool[np.ndarray, " prompts"], layers: Sequence[int] = ()
) -> WriteFitter:
    """Return the fitter of a category's directions on some prompts, at some layers or all candidate ones."""
    store, samples = loaded.store, category.samples(loaded.corpus, inside)
    loci = [(layer, WRITE_POSITION) for layer in layers or candidate_layers(loaded)]
    if samples.declined.all() or not samples.declined.any():
        raise UserError(
            f"category {category.name!r} has no declined or no answered prompts in a fold; give those of "
            "more pairs, or leave it out (categories.only)"
        )
    return WriteFitter(store.read, store.site, loci, category.kind, samples, store.layers)


def _stopped(
    loaded: LoadedRun, category: Category, directions: Sequence[Direction], inside: Bool[np.ndarray, " prompts"]
) -> Float[np.ndarray, " directions"]:
    """Return the share of the choosing fold's decliners that each ablation stops; NaN with too few of them."""
    config, rng = loaded.config.dissociate, named_rng(loaded.config.seed, "category layer", category.name)
    decliners = np.sort(rng.permutation(category.decliners[inside[category.decliners]])[: config.n_selection])
    if len(decliners) < MIN_VALIDATION:
        return np.full(len(directions), np.nan)
    trials = {i: ablation(direction, config.variant) for i, direction in enumerate(directions)}
    return np.array([of.hits(OPENED).mean() for of in loaded.completer.outcomes(decliners, trials).values()])


def _span(
    loaded: LoadedRun, categories: Sequence[Category], own: dict[str, Direction], training: Bool[np.ndarray, " prompts"]
) -> Subspace:
    """Return the span of unit directions by its principal directions; class means are means of the categories'."""
    basis = np.linalg.svd(np.stack([d.vector for d in own.values()]).astype(np.float64), full_matrices=False)[2]
    locus = next(iter(own.values())).locus
    samples = [c.samples(loaded.corpus, training) for c in categories]

    def means(layer: int) -> tuple[np.ndarray, np.ndarray]:
        X = loaded.write_activations(layer)
        along = [(X[s.rows].astype(np.float64) @ basis.T, s.declined) for s in samples]
        on, off = (np.mean([a[side(d)].mean(axis=0) for a, d in along], axis=0) for side in (np.asarray, np.invert))
        return on, off

    on, off = means(locus.layer)
    later = [layer for layer in loaded.store.layers if layer > locus.layer]
    if loaded.config.dissociate.variant.layers == "selected":
        later = []
    return Subspace("span", basis.astype(np.float32), locus, on, off, later_means={at: means(at) for at in later})
