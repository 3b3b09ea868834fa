"""Thresholds by category of a run: what the dials apply, and what the results say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Shaped

from experiments.dials.by_category.read import Recognised, fit_category_read
from experiments.dials.by_category.thresholds import CategoryChooser
from experiments.dials.operating_point import Targets
from experiments.dials.policies import PolicyEvaluation
from experiments.dials.results import ByCategory, CategoryDials, PairedChange
from experiments.dials.surface import paired_changes
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from probes.direction import Locus
from steering.dial import CategoryThresholds

TOO_FEW = "fewer than two categories have 20 training prompts of five groups to be recognised by"


@dataclass(frozen=True)
class ChosenByCategory:
    """What every prompt of the run would get, and the dials' thresholds by category."""

    actions: Shaped[np.ndarray, " prompts"]  # of every prompt, by look-up
    result: ByCategory
    applied: Mapping[Kind, CategoryThresholds] = field(default_factory=dict)  # empty: no category has its own


def choose_by_category(
    loaded: LoadedRun,
    policy: PolicyEvaluation,
    pooled: Mapping[Kind, float],
    declining: Mapping[Kind, Bool[np.ndarray, " prompts"]],
    locus: Locus,
    targets: Targets,
) -> ChosenByCategory:
    """Choose and certify thresholds by category.

    Args:
        pooled: the threshold of each dial for all prompts.
        declining: the prompts that each dial should decline.
        locus: where categories are recognised.
    """
    recognised = fit_category_read(loaded, locus)
    band = loaded.config.steer.band
    before = policy.table.actions_at(list(pooled.values()), band)
    if recognised is None:
        return ChosenByCategory(before, ByCategory(reason=TOO_FEW))
    given = [kind for kind in pooled if getattr(loaded.config.steer, f"{kind}_threshold") is not None]
    found = CategoryChooser(policy, pooled, declining, targets, given).of(recognised)
    after = policy.table.actions_at(list(thresholds_of(pooled, found, recognised).values()), band)
    share, right = recognised.right(loaded.corpus, loaded.corpus.rated & loaded.corpus.within("test"))
    read = recognised.read
    result = ByCategory(
        read_at=read.locus,
        confident=read.confident,
        recognised=share,
        right=None if np.isnan(right) else right,
        categories=found,
        changes=_changes(loaded, before, after),
    )
    own: dict[Kind, dict[str, float]] = {kind: {} for kind in pooled}
    for name, one in found.items():
        for kind, tau in (one.thresholds or {}).items():
            own[kind][name] = tau
    applied = {kind: CategoryThresholds(read, taus) for kind, taus in own.items()} if any(own.values()) else {}
    return ChosenByCategory(after, result, applied)


def thresholds_of(
    pooled: Mapping[Kind, float], categories: Mapping[str, CategoryDials], recognised: Recognised
) -> dict[Kind, Float[np.ndarray, " prompts"]]:
    """Return the threshold of each dial for every prompt: its category's where that has one."""
    found = {kind: np.full(len(recognised.names), tau) for kind, tau in pooled.items()}
    for name, one in categories.items():
        for kind, tau in (one.thresholds or {}).items():
            found[kind][recognised.names == name] = tau
    return found


def _changes(
    loaded: LoadedRun, before: Shaped[np.ndarray, " prompts"], after: Shaped[np.ndarray, " prompts"]
) -> dict[str, PairedChange]:
    """Return the changes of the joint rates on test prompts, by look-up."""
    test = np.flatnonzero(loaded.corpus.within("test"))
    labels = [loaded.prompts[i].label for i in test]
    return paired_changes(labels, before[test], after[test], loaded.corpus.groups[test])
