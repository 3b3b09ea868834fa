"""Measures categories of declining on a model: ablations on held-out folds, and the geometry of their directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from experiments.categories.fits import FoldFit, fit_without
from experiments.categories.geometry import READ_POSITION, geometry
from experiments.categories.members import SETS, Category, DeclineSet, find_categories, folds_of
from experiments.categories.results import (
    CategoryEffects,
    CategoryOutcomes,
    FoldRecord,
    Places,
    SetEffects,
    ablated_name,
    common_name,
    control_name,
)
from experiments.categories.tradeoff import measure_tradeoff
from experiments.probing.geometry import over_refused_places
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.config import WRITE_POSITION
from scoring.actions import OPENED

Outcomes = dict[str, np.ndarray]  # by ablation: for each prompt, whether it stopped declining


def measure_categories(loaded: LoadedRun) -> None:
    """Write stages/category_effects.json; it does not depend on the margin and the level of the verdict."""
    sets = {declines: measure_set(loaded, declines) for declines in SETS}
    over = sets["over_refusal"]
    CategoryEffects(
        **{declines: one.effects for declines, one in sets.items()},
        tradeoff=measure_tradeoff(loaded, over.categories, over.folds, over.fits) if over.fits else None,
        places=_places(loaded),
    ).write(loaded.file("stages/category_effects.json"))


def _places(loaded: LoadedRun) -> Places:
    """Return where each category's over-refused prompts lie; categories with too few of a kind have no place."""
    names = sorted({prompt.category for prompt in loaded.prompts if prompt.category})
    over_refused = {name: over_refused_places(loaded, WRITE_POSITION, name) for name in names}
    return {name: places for name, places in over_refused.items() if places}


@dataclass(frozen=True)
class Measured:
    """The measurements on one set of declines, and what they were made with."""

    effects: SetEffects
    categories: Sequence[Category] = ()
    folds: Int[np.ndarray, " prompts"] = field(default_factory=lambda: np.zeros(0, dtype=int))
    fits: Sequence[FoldFit] = ()


def measure_set(loaded: LoadedRun, declines: DeclineSet) -> Measured:
    """Measure all categories of one set of declines."""
    settings = loaded.config.categories
    least = settings.least_over_refused if declines == "over_refusal" else settings.least
    categories, missing = find_categories(loaded.behaviour, declines, least)
    if settings.only:
        categories = [category for category in categories if category.name in settings.only]
    if len(categories) < 2:
        alone = {c.name: "no other category to compare it with" for c in categories}
        return Measured(SetEffects(missing=missing | alone))
    folds = folds_of(loaded.corpus, categories, settings.folds, loaded.config.seed)
    with loaded.reporter.task(f"directions of {len(categories)} categories ({declines})", settings.folds) as advance:
        fits = []
        for fold in range(settings.folds):
            fits.append(fit_without(loaded, categories, folds, fold))
            advance(1)
    stopped = _ablated(loaded, declines, categories, folds, fits)
    layer = Counter(fit.layer for fit in fits).most_common(1)[0][0]
    effects = SetEffects(
        missing=missing,
        folds=tuple(FoldRecord(layer=f.layer, within_label=f.within_label) for f in fits),
        outcomes={category.name: _outcomes(category, categories, stopped) for category in categories},
        write_directions=geometry(loaded, categories, folds, layer, WRITE_POSITION, by="behaviour"),
        read_directions=None
        if declines == "over_refusal"  # refused and answered prompts of one label: nothing to read but the behaviour
        else geometry(loaded, categories, folds, layer, READ_POSITION, by="label"),
    )
    return Measured(effects, categories, folds, fits)


def _ablated(
    loaded: LoadedRun, declines: DeclineSet, categories: Sequence[Category], folds: np.ndarray, fits: Sequence[FoldFit]
) -> Outcomes:
    """Answer every decliner once under each ablation of the fold that holds it."""
    decliners = np.sort(np.concatenate([category.decliners for category in categories]))
    own = {row: category.name for category in categories for row in category.decliners.tolist()}
    n_all, stopped = 2 * len(categories), dict[str, np.ndarray]()
    with loaded.reporter.task(f"ablations on held-out decliners ({declines})", (n_all + 1) * len(decliners)) as advance:
        for fold, fit in enumerate(fits):
            tested, edits = decliners[folds[decliners] == fold], fit.edits(loaded)
            shared = {name: edit for name, edit in edits.items() if not name.startswith("control ")}
            done = loaded.completer.complete_each(tested.tolist(), [Setting(e) for e in shared.values()], advance)
            for name, completions in zip(shared, done, strict=True):
                _note(stopped, name, tested, [one.action for one in completions], len(loaded.corpus))
            for category in categories:
                name = control_name(category.name)
                rows = np.array([row for row in tested.tolist() if own[row] == category.name], dtype=int)
                completions = loaded.completer.complete(rows.tolist(), edits=edits[name], advance=advance)
                _note(stopped, name, rows, [one.action for one in completions], len(loaded.corpus))
    return stopped


def _note(stopped: Outcomes, name: str, rows: np.ndarray, actions: Sequence[str | None], n: int) -> None:
    stopped.setdefault(name, np.zeros(n, dtype=bool))[rows] = [action in OPENED for action in actions]


def _outcomes(
    category: Category, categories: Sequence[Category], stopped: Mapping[str, np.ndarray]
) -> CategoryOutcomes:
    rows = category.decliners
    names = [
        *(ablated_name(c.name) for c in categories),
        control_name(category.name),
        *(common_name(k + 1) for k in range(len(categories))),
    ]
    return CategoryOutcomes(
        rows=tuple(rows.tolist()), stopped={name: tuple(stopped[name][rows].tolist()) for name in names}
    )
