"""Probes at every layer and position of one contrast, chosen on validation and reported on test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score

from probes.logistic import LinearProbe, fit_logistic
from probes.means import difference_in_means, unit
from probes.metrics import Discrimination, d_prime, discrimination

Read = Callable[[int, str], np.ndarray]


@dataclass(frozen=True)
class Contrast:
    """Which samples a probe tells apart: `rows` index all samples, `y` is the declining class among them."""

    name: str
    rows: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    part: np.ndarray  # "train", "validation", "test" or anything else, which is left out

    def within(self, part: str) -> np.ndarray:
        return np.flatnonzero(self.part == part)


@dataclass(frozen=True)
class Cell:
    """Both probes of one locus. Scores are AUROCs; test is measured, never chosen on."""

    layer: int
    position: str
    validation: dict[str, float]
    separation: dict[str, float]  # d' on validation: distance of the class means in pooled standard deviations
    test: dict[str, Discrimination]
    logistic: LinearProbe
    means: np.ndarray  # (d_model,) unit difference in means


KINDS = ("difference_in_means", "logistic")


def probe_grid(
    read: Read, layers: Sequence[int], positions: Sequence[str], contrast: Contrast, progress: Callable[[], None]
) -> Iterator[Cell]:
    """Fit both probes at every locus of one contrast.

    Raises:
        ValueError: a class is missing from the training, validation or test part.
    """
    for layer in layers:
        for position in positions:
            yield _cell(read(layer, position)[contrast.rows], layer, position, contrast)
            progress()


def choose(cells: Sequence[Cell], kind: str = "logistic") -> Cell:
    """Choose the locus by validation AUROC; among ties (common at 1.0) by d', which tells how wide the gap is."""
    best = max(cell.validation[kind] for cell in cells)
    tied = [cell for cell in cells if cell.validation[kind] >= best - 1e-9]
    return max(tied, key=lambda cell: cell.separation[kind])


def _cell(X: np.ndarray, layer: int, position: str, contrast: Contrast) -> Cell:
    train, validation, test = (contrast.within(part) for part in ("train", "validation", "test"))
    y, groups = contrast.y, contrast.groups
    for name, rows in (("train", train), ("validation", validation), ("test", test)):
        if y[rows].all() or not y[rows].any():
            raise ValueError(f"contrast {contrast.name!r} needs both classes in its {name} part; "
                             f"got {int(y[rows].sum())} positive of {len(rows)}")  # fmt: skip
    means = unit(difference_in_means(X[train], y[train]))
    logistic = fit_logistic(X[train], y[train], groups[train])
    middle = 0.5 * sum(float((X[train][side] @ means).mean()) for side in (y[train], ~y[train]))
    scores = {"difference_in_means": X @ means - middle, "logistic": logistic.decision_function(X)}
    return Cell(
        layer=layer,
        position=position,
        validation={k: float(roc_auc_score(y[validation], s[validation])) for k, s in scores.items()},
        separation={k: d_prime(y[validation], s[validation]) for k, s in scores.items()},
        test={k: discrimination(y[test], s[test], groups[test]) for k, s in scores.items()},
        logistic=logistic,
        means=means,
    )
