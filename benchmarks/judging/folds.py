"""Folds that leave out a model and a kind of prompts at once.

All models of a set answer the same prompts: leaving out a model alone would fit on the same questions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from benchmarks.judging.fit import Read, common_features, fit
from scoring.judges.weights import Outcome, Weights

N_FOLDS = 4


def weighed_unseen(rows: Sequence[Read]) -> Iterator[tuple[Read, dict[Outcome, float] | None]]:
    """Yield each row with its probabilities under weights that saw neither its model nor its kind of prompt.

    Sets with one model are left out whole; what is never fitted on is judged by the weights of all other rows.
    """
    fold = folds(rows)
    left_out: dict[tuple[str, str, int], list[int]] = {}
    for i, one in enumerate(rows):
        left_out.setdefault(_part(one, fold), []).append(i)
    for (dataset, model, number), places in left_out.items():
        kept = [one for one in rows if not _close(one, dataset, model, number, fold)]
        names = common_features(kept)
        W = fit(kept, names)
        weights = Weights({name: tuple(row) for name, row in zip(names, W.tolist(), strict=True)})
        for i in places:
            yield rows[i], weights.probabilities(rows[i].features) if rows[i].features else None


def folds(rows: Sequence[Read], n_folds: int = N_FOLDS) -> dict[tuple[str, str], int]:
    """Assign each set's kinds of prompts to folds at random."""
    found: dict[tuple[str, str], int] = {}
    for dataset in sorted({one.row.dataset for one in rows}):
        kinds = sorted({one.row.kind for one in rows if one.row.dataset == dataset})
        random.Random(0).shuffle(kinds)
        found |= {(dataset, kind): i % n_folds for i, kind in enumerate(kinds)}
    return found


def _part(one: Read, fold: dict[tuple[str, str], int]) -> tuple[str, str, int]:
    row = one.row
    if row.dataset in ("XSTest", "Do-Not-Answer"):
        return row.dataset, row.model, fold[row.dataset, row.kind]
    if row.dataset == "written, seen":
        return row.dataset, "", fold[row.dataset, row.kind]
    return row.dataset if row.outcomes else "measured only", "", -1


def _close(one: Read, dataset: str, model: str, number: int, fold: dict[tuple[str, str], int]) -> bool:
    """Return whether a row is too close to the left-out part to be fitted on."""
    row = one.row
    if row.dataset != dataset:
        return False
    return number < 0 or row.model == model or fold[dataset, row.kind] == number
