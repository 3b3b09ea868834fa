"""Probes of activations at every layer and position, and the direction between two classes at one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Shaped

from extract.errors import UserError
from extract.html_table import html_table
from extract.progress import Reporter
from extract.prompts.groups import groups_of
from probes.contrast import Contrast
from probes.direction import Direction, Locus
from probes.estimators import DifferenceInMeans
from probes.grid.baselines import bag_of_words_auroc
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus, choose_locus_by_fold
from probes.statistics.metrics import Discrimination
from steering.control_vectors import load_directions
from steering.direction_file import save_directions

if TYPE_CHECKING:
    from extract.in_memory import Activations
    from extract.store.activation_store import ActivationStore
    from refusal.charts import Chart

    Readable = Activations | ActivationStore

__all__ = ["Direction", "LayerProbes", "fit_direction", "load_directions", "probe_layers", "save_directions"]


@dataclass(frozen=True, eq=False, repr=False)
class LayerProbes:
    """Logistic and difference-in-means probes at every layer and position, each scored on held-out folds.

    `best` is the layer and position with the highest validation AUROC; its `auroc` is that of choosing and testing
    in every fold by itself, so the choice does not flatter it. `bag_of_words` is the AUROC of word counts on the same
    folds: a probe that does not exceed it has not been shown to read more than words. Positions that some prompts lack
    are scored on the others, and are never the best one; `left_out` are those at which a class has too few groups.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> prompts = refusal.load_prompts("organisms/zoo/two-knobs/prompts.jsonl")[:60]
    >>> activations = model.activations(prompts, positions="post_last", layers=[0, 3], progress=False)
    >>> probes = refusal.probe_layers(activations, activations.labels, positive="harmful", progress=False)
    >>> probes.best.layer, probes.auroc.auroc.estimate > probes.bag_of_words
    (3, True)
    """

    scores: tuple[LocusScores, ...]
    best: Locus
    auroc: Discrimination
    bag_of_words: float
    site: str
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        at, auroc = self.best, self.auroc
        return (
            f"LayerProbes({self.site}, {len(self.scores)} layers and positions; best layer {at.layer} "
            f"{at.position}, AUROC {auroc.auroc:.3f}, bag of words {self.bag_of_words:.3f}; "
            f"{auroc.n_positive} + {auroc.n_negative} prompts)"
        )

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        logistic = frame[frame["probe"] == LOGISTIC]
        best = logistic.loc[logistic.groupby("position", sort=False)["auroc"].idxmax()]
        columns = ["position", "layer", "auroc", "auroc_low", "auroc_high"]
        rows = best[columns].astype(object).to_numpy().tolist()
        caption = f"{self!r}. The layer of each position with the highest test AUROC; .plot() draws all layers"
        return html_table(caption, ["position", "layer", "AUROC", "low", "high"], rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a layer, position and kind of probe: AUROC with its 95 % limits over groups, counts."""
        rows = []
        for one in self.scores:
            for kind, score in one.scores.items():
                auroc = {"auroc": score.test.auroc.estimate, "auroc_low": score.test.auroc.low}
                auroc |= {"auroc_high": score.test.auroc.high, "balanced_accuracy": score.test.balanced_accuracy}
                counts = {"n_positive": score.test.n_positive, "n_negative": score.test.n_negative}
                rows.append({"layer": one.layer, "position": one.position, "probe": kind, **auroc, **counts})
        return pd.DataFrame(rows)

    def plot(self, probe: str = LOGISTIC) -> Chart:
        """Draw AUROC over layers, a line a position; `.save("probes.png")` (or .svg, .html) writes it.

        Args:
            probe: `logistic` or `difference_in_means`.

        Raises:
            UserError: there is no such probe.
        """
        from refusal.charts import auroc_by_layer

        frame = self.to_frame()
        if probe not in set(frame["probe"]):
            raise UserError(f"no such probe: {probe!r}; expected one of {', '.join(frame['probe'].unique())}")
        return auroc_by_layer(
            frame[frame["probe"] == probe], self.bag_of_words, f"{probe} probes on held-out folds, {self.site}"
        )


def probe_layers(
    activations: Readable,
    y: Iterable[object],
    groups: Iterable[object] | None = None,
    *,
    positive: object = None,
    negative: object = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> LayerProbes:
    """Fit probes at every layer and position by nested cross-validation over whole groups.

    Args:
        activations: from `Model.activations`, or a store.
        y: one a prompt: True for the positive class; or labels, of which `positive` is one. Where `negative` is given
            too, prompts of other labels, or of none, are left out.
        groups: what no fold may separate. None: prompts that share a pair, an entity, a template or all their words.
        positive: label of the positive class.
        negative: label of the other class; None: all other labels.
        n_folds: outer folds; each tests once.

    Raises:
        UserError: lengths differ, a class or a label is missing, labels are given without `positive`, or a class has
            too few groups for the folds at every position.
        ValueError: an activation is not finite.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> prompts = refusal.load_prompts("organisms/zoo/two-knobs/prompts.jsonl")[:100]
    >>> activations = model.activations(prompts, positions=["inst_last", "post_last"], layers=[1, 3], progress=False)
    >>> probes = refusal.probe_layers(
    ...     activations, activations.labels, positive="harmful", negative="benign", progress=False
    ... )
    >>> probes.best.layer, probes.best.position, round(probes.auroc.auroc.estimate, 2)
    (3, 'post_last', 1.0)
    >>> list(probes.to_frame())[:5]
    ['layer', 'position', 'probe', 'auroc', 'auroc_low']
    """
    _refuse_bare(activations)
    prompts = list(activations.prompts)
    rows, classes = _classes(y, len(prompts), positive, negative)
    grouped = groups_of(prompts) if groups is None else _column(groups, len(prompts), "group")
    grids, left_out = _grids(activations, rows, classes, grouped, n_folds, seed)
    scores: list[LocusScores] = []
    with Reporter(quiet=not progress).task("probing", len(activations.layers) * len(grids)) as advance:
        for position, grid in grids.items():
            for layer in activations.layers:
                read = activations.read(layer, position)[None, None]
                scores += grid.scores_by_locus(read, [layer], [position])
                advance(1)
    most = max(len(grid.contrasts[0].rows) for grid in grids.values())
    fullest = {position: grid for position, grid in grids.items() if len(grid.contrasts[0].rows) == most}
    if most < len(rows):  # no position is in all prompts: those of another are other folds
        fullest = dict(list(fullest.items())[:1])
    eligible = [one for one in scores if one.position in fullest]
    chosen, (_, honest) = choose_locus(eligible), choose_locus_by_fold(eligible)
    grid = next(iter(fullest.values()))
    contrast, texts = grid.contrasts[0], [prompts[row].text for row in grid.contrasts[0].rows]
    words = [bag_of_words_auroc(texts, contrast.y, fold.train, fold.test) for fold in grid.folds[0]]
    best = Locus(activations.site, chosen.layer, chosen.position)
    return LayerProbes(tuple(scores), best, honest, float(np.mean(words)), activations.site, left_out)


def fit_direction(
    activations: Readable,
    y: Iterable[object],
    *,
    layer: int,
    positive: object = None,
    negative: object = None,
    position: str | None = None,
    name: str | None = None,
) -> Direction:
    """Fit the difference in means at one layer and position (Arditi et al. 2024, arXiv 2406.11717).

    Args:
        y: one a prompt: True for the positive class; or labels, of which `positive` is one.
        positive: label of the positive class.
        negative: label of the other class; None: all other labels.
        position: `post_last` where it was captured, or the only one captured, if none is given.
        name: of the direction; the positive label if none is given.

    Raises:
        UserError: lengths differ, a class is missing, or the layer or position was not captured.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> prompts = refusal.load_prompts("organisms/zoo/two-knobs/prompts.jsonl")[:100]
    >>> activations = model.activations(prompts, positions="post_last", layers=3, progress=False)
    >>> refusal.fit_direction(activations, activations.labels, layer=3, positive="harmful", negative="benign")
    Direction('harmful', resid_post layer 3 post_last, d_model 128, class means -3.59 and 8.67)
    """
    _refuse_bare(activations)
    rows, classes = _classes(y, len(activations.prompts), positive, negative)
    there = activations.positions
    position = position or (there[0] if len(there) == 1 else "post_last")
    if position not in there:
        raise UserError(f"position {position!r} was not captured; give one of {', '.join(there)} as position=")
    if layer not in activations.layers:
        raise UserError(f"layer {layer} was not captured; there are {', '.join(map(str, activations.layers))}")
    present = activations.present[there.index(position)][rows]
    rows, classes = rows[present], classes[present]
    if classes.all() or not classes.any():
        raise UserError(f"both classes are needed at {position}; got {classes.sum()} positive of {len(classes)}")
    probe = DifferenceInMeans().fit(activations.read(layer, position)[rows], classes)
    called = name or (str(positive) if positive is not None else "direction")
    named = {"fitted_on": len(rows), "positive_class": positive, "negative_class": negative}
    fitted = {key: value for key, value in named.items() if value is not None}
    return probe.direction(called, Locus(activations.site, int(layer), position), fitted)


def _refuse_bare(activations: object) -> None:
    if not hasattr(activations, "prompts"):
        raise UserError(
            f"give the Activations of Model.activations, or a store; got {type(activations).__name__} (bare arrays: "
            "probes.ProbeGrid, probes.DifferenceInMeans)"
        )


def _grids(
    activations: Readable, rows: np.ndarray, classes: np.ndarray, groups: np.ndarray, n_folds: int, seed: int
) -> tuple[dict[str, ProbeGrid], tuple[str, ...]]:
    """Return the folds at each position, of the prompts that have it; and the positions that are left out."""
    grids: dict[str, ProbeGrid] = {}
    faults: dict[str, str] = {}
    for position, has in zip(activations.positions, np.asarray(activations.present), strict=True):
        kept = has[rows]
        part = np.full(int(kept.sum()), "train")
        try:
            contrast = Contrast("y", rows[kept], classes[kept], groups[rows[kept]], part)
            grids[position] = ProbeGrid.cross_validated([contrast], n_folds, seed=seed)
        except ValueError as error:
            faults[position] = str(error)
    if not grids:
        raise UserError("; ".join(f"{position}: {fault}" for position, fault in list(faults.items())[:3]))
    return grids, tuple(faults)


def _classes(
    y: Iterable[object], n: int, positive: object, negative: object
) -> tuple[Int[np.ndarray, " kept"], Bool[np.ndarray, " kept"]]:
    """Return the prompts of either class, and which of them are of the positive one."""
    labels = _column(y, n, "label", may_lack=positive is not None and negative is not None)
    there = sorted({str(label) for label in labels})
    if positive is None:
        if negative is not None or not all(
            isinstance(v, bool | np.bool_ | int | np.integer) and v in (0, 1) for v in labels
        ):
            raise UserError(
                f"y holds {', '.join(there[:6])}; say which is the positive class, such as positive={labels[0]!r}"
            )
        kept, is_positive = np.arange(n), labels.astype(bool)
    else:
        for label in (positive, *(() if negative is None else (negative,))):
            if not isinstance(label, Hashable):
                raise UserError(f"a class has one label; got {type(label).__name__}")
            if not (labels == label).any():
                raise UserError(f"no prompt has the label {label!r}; there are {', '.join(there[:6])}")
        kept = np.arange(n) if negative is None else np.flatnonzero((labels == positive) | (labels == negative))
        is_positive = labels[kept] == positive
    if is_positive.all() or not is_positive.any():
        raise UserError(f"both classes are needed; got {int(is_positive.sum())} positive of {len(is_positive)}")
    return kept, np.asarray(is_positive, dtype=bool)


def _column(given: Iterable[object], n: int, what: str, *, may_lack: bool = False) -> Shaped[np.ndarray, " prompts"]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UserError(f"give one {what} a prompt, as a list; got {type(given).__name__}")
    values = list(given)
    if len(values) != n:
        raise UserError(f"give one {what} a prompt; got {len(values)} for {n} prompts")
    if nested := [value for value in values if isinstance(value, list | tuple | np.ndarray)]:
        raise UserError(f"a {what} is one value a prompt; got {type(nested[0]).__name__}")
    column = np.empty(n, dtype=object)
    column[:] = [value.item() if isinstance(value, np.generic) else value for value in values]
    missing = np.flatnonzero(pd.isna(column))
    column[missing] = None
    if len(missing) and not may_lack:
        raise UserError(f"the {what} of prompt {missing[0]} is missing; leave such prompts out")
    return column
