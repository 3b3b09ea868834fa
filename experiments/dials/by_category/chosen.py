"""Thresholds by category of a run: what the dials apply, and what the results say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

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
    """The threshold of each dial for every prompt of the run, and the dials' thresholds by category."""

    thresholds: Mapping[Kind, Float[np.ndarray, " prompts"]]
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
    n = len(loaded.prompts)
    if recognised is None:
        return ChosenByCategory({kind: np.full(n, tau) for kind, tau in pooled.items()}, ByCategory(reason=TOO_FEW))
    found = CategoryChooser(policy, pooled, declining, targets).of(recognised)
    thresholds = thresholds_of(pooled, found, recognised)
    share, right = recognised.right(loaded.corpus, loaded.corpus.rated & loaded.corpus.within("test"))
    read = recognised.read
    result = ByCategory(
        read_at=read.locus,
        confident=read.confident,
        recognised=share,
        right=None if np.isnan(right) else right,
        categories=found,
        changes=_changes(loaded, policy, list(pooled.values()), list(thresholds.values())),
    )
    own: dict[Kind, dict[str, float]] = {kind: {} for kind in pooled}
    for name, one in found.items():
        for kind, tau in (one.thresholds or {}).items():
            own[kind][name] = tau
    applied = {kind: CategoryThresholds(read, taus) for kind, taus in own.items()} if any(own.values()) else {}
    return ChosenByCategory(thresholds, result, applied)


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
    loaded: LoadedRun,
    policy: PolicyEvaluation,
    before: Sequence[float],
    after: Sequence[Float[np.ndarray, " prompts"]],
) -> dict[str, PairedChange]:
    """Return the changes of the joint rates on test prompts, by look-up."""
    test, band = np.flatnonzero(loaded.corpus.within("test")), loaded.config.steer.band
    was, now = (policy.table.actions_at(thresholds, band)[test] for thresholds in (before, after))
    return paired_changes([loaded.prompts[i].label for i in test], was, now, loaded.corpus.groups[test])
