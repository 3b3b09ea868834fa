"""Which rows are left out, so that weights judge models and kinds of prompts that they have not seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.training.fit import Read, common_features, fit
from benchmarks.training.labelled import COMPLETIONS
from scoring.judges.weights import Outcome, Weights

FAMILIES = (
    frozenset({"gpt4", "ChatGPT"}),
    frozenset({"llama2new", "llama2-7b-chat"}),
    frozenset({"mistralguard", "Claude"}),
)
OF_SEVERAL = ("XSTest", "Do-Not-Answer")
OF_ONE = ("GPT-3.5", "gemma-2b", "CoCoNot")
N_FOLDS = 4
HALVES = 2
WRITTEN = tuple(f"written, {name}" for name in COMPLETIONS if name != "held_out")  # with the first family's folds

Held = Callable[[Read], bool]


def unseen_parts(rows: Sequence[Read]) -> Iterator[tuple[Held, Held]]:
    """Yield which rows a part judges, and which are too close to them to be trained on: of a model or kind of theirs.

    Sets with one model are left out together; each row that has outcomes is judged once.
    """
    fold = folds(rows, HALVES)
    for family in FAMILIES:
        for number in range(HALVES):
            yield _family_part(family, number, fold)
    yield (lambda one: one.row.dataset in OF_ONE), (lambda one: one.row.dataset in OF_ONE)


def _family_part(family: frozenset[str], number: int, fold: Mapping[tuple[str, str], int]) -> tuple[Held, Held]:
    def of_fold(one: Read) -> bool:
        return fold[one.row.dataset, one.row.kind] == number

    def written(one: Read) -> bool:
        return family is FAMILIES[0] and one.row.dataset in WRITTEN and of_fold(one)

    def held(one: Read) -> bool:
        several = one.row.dataset in OF_SEVERAL and one.row.model in family and of_fold(one)
        return several or written(one)

    def close(one: Read) -> bool:
        several = one.row.dataset in OF_SEVERAL and (one.row.model in family or of_fold(one))
        return several or written(one)

    return held, close


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
    if row.dataset in OF_SEVERAL:
        return row.dataset, row.model, fold[row.dataset, row.kind]
    if row.dataset in WRITTEN:
        return row.dataset, "", fold[row.dataset, row.kind]
    return row.dataset if row.outcomes else "measured only", "", -1


def _close(one: Read, dataset: str, model: str, number: int, fold: dict[tuple[str, str], int]) -> bool:
    """Return whether a row is too close to the left-out part to be fitted on."""
    row = one.row
    if row.dataset != dataset:
        return False
    return number < 0 or row.model == model or fold[dataset, row.kind] == number
