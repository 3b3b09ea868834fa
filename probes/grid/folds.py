"""Outer and inner folds of whole groups: rows to fit a probe, to choose its C and its locus, and to test it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer
from sklearn.model_selection import StratifiedGroupKFold

from probes.contrast import Contrast

Rows = Integer[np.ndarray, "_"]  # indices into a contrast's rows
Split = tuple[Rows, Rows]


@dataclass(frozen=True)
class Fold:
    """One outer fold of a contrast."""

    train: Rows
    test: Rows  # reported; used for no choice
    inner: tuple[Split, ...]  # (fit rows, validation rows) within train, to choose C
    validation: Rows | None = None  # chooses the locus; if None, the inner folds do


def cross_validation(contrast: Contrast, n_folds: int = 5, n_inner: int = 3, seed: int = 0) -> tuple[Fold, ...]:
    """Divide a contrast into outer folds, each tested once, and the training rows of each into inner folds.

    Groups stay whole at both levels, and classes are balanced as far as groups allow. The contrast's parts are ignored.
    """
    rows = np.arange(len(contrast.rows))
    outer = _splits(contrast, rows, n_folds, seed, "folds")
    return tuple(Fold(a, b, _splits(contrast, a, n_inner, seed, f"inner folds of {len(a)} samples")) for a, b in outer)


def held_out(contrast: Contrast, n_inner: int = 3, seed: int = 0) -> tuple[Fold]:
    """Return the single fold given by a contrast's parts: train, validation (chooses the locus) and test.

    If a class has fewer training groups than `n_inner`, there are as many inner folds (to choose C), but at least two.
    """
    parts = {name: contrast.within(name, both_classes=True) for name in ("train", "validation", "test")}
    for one, other in itertools.combinations(parts, 2):
        if len(both := np.intersect1d(contrast.groups[parts[one]], contrast.groups[parts[other]])):
            raise ValueError(
                f"group {both[0]} of contrast {contrast.name!r} is in its {one} and {other} parts; "
                "put each group into one part"
            )
    y, groups = contrast.y[parts["train"]], contrast.groups[parts["train"]]
    n = max(2, min(n_inner, *(len(np.unique(groups[side])) for side in (y, ~y))))
    inner = _splits(contrast, parts["train"], n, seed, "inner folds of its train part")
    return (Fold(parts["train"], parts["test"], inner, parts["validation"]),)


def _splits(contrast: Contrast, rows: np.ndarray, n: int, seed: int, what: str) -> tuple[Split, ...]:
    y, groups = contrast.y[rows], contrast.groups[rows]
    if y.all() or not y.any():
        raise ValueError(f"contrast {contrast.name!r} needs both classes; got {y.sum()} positive of {len(y)}")
    for side, name in ((y, "positive"), (~y, "negative")):
        if (n_groups := len(np.unique(groups[side]))) < n:
            some = f"{n_groups} {name} group{'s' * (n_groups != 1)}"
            raise ValueError(
                f"contrast {contrast.name!r} has {some}, too few for {n} {what}; use fewer folds or more prompts"
            )
    # The seed itself, not a named stream, so that runs of older versions keep their folds, C and locus.
    splitter = StratifiedGroupKFold(n, shuffle=True, random_state=seed)
    splits = tuple((rows[a], rows[b]) for a, b in splitter.split(rows, y, groups))
    if any(len(set(contrast.y[part])) < 2 for split in splits for part in split):
        raise ValueError(
            f"the groups of contrast {contrast.name!r} do not divide into {n} {what} with both classes in "
            "each; use fewer folds or more prompts"
        )
    return splits
