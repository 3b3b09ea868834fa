"""Policies compared on test prompts: frontiers and hypervolumes, described; least expected costs, tested.

A policy's frontier holds the Pareto-optimal settings on the choice prompts, measured on test. Its hypervolume, the
share of the unit cube of AXES that these points dominate, is a description without an interval: each further point can
only add to it, by noise too, so a policy with more settings (two dials) has a larger one though it is no better.

The comparison uses least expected costs. The convex hull of a frontier is known by the least expected cost at each
ratio of the costs, so equal frontiers have equal least costs. At each of COST_RATIOS a policy gets one setting, the
cheapest on the choice prompts; its costs on test are averaged over the ratios. Test chooses nothing, so a policy gains
nothing from the number of its settings. Matching over-refusal instead would not do: the policy with more settings gets
further along the same frontier, with more over-refusal and fewer other mistakes. The difference is paired, with an
interval over groups that also has a width where no policy errs (`probes.statistics.means`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.results import HypervolumeEstimate
from experiments.dials.surface import AXES, Risk, Surface, axes_of, comparable, rates_of
from probes.statistics.intervals import Estimate
from probes.statistics.means import sum_of_means
from probes.statistics.tradeoffs import front, hypervolume

COST_KEYS = ("over_refusal", "missed_harm", "overconfidence")  # of `steer.costs`, in the order of AXES
COST_RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)  # the cost of over_refusal, times the given one
REFERENCE = (1.0, 1.0, 1.0)
MOST_POINTS = 60  # of a frontier; more add almost no hypervolume


def frontier(surface: Surface, choice: Mapping[str, Risk]) -> Int[np.ndarray, " kept"]:
    """Return the Pareto-optimal settings on the choice prompts, MOST_POINTS at most.

    Indices into the surface, in order of the first axis.
    """
    points = axes_of(rates_of(surface, choice))
    kept = front(points)
    kept = kept[np.lexsort(points[kept].T[::-1])]
    if len(kept) > MOST_POINTS:
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).round().astype(int))]
    return kept


def frontier_volume(surface: Surface, test: Mapping[str, Risk]) -> HypervolumeEstimate:
    """Return the hypervolume of some settings on test, and the number of these settings; it has no interval."""
    volume = hypervolume(axes_of(rates_of(surface, test)), REFERENCE)
    return HypervolumeEstimate(volume, nan, nan, points=len(surface.settings))


def cost_shares(costs: Mapping[str, float]) -> Float[np.ndarray, "ratios axes"]:
    """Return the cost of each axis at each of COST_RATIOS, each row divided by its sum.

    Args:
        costs: of COST_KEYS, 0 where missing; all 0 counts as equal costs.
    """
    base = np.array([costs.get(key, 0.0) for key in COST_KEYS])
    weighted = (base if base.any() else np.ones(len(AXES))) * np.array([(ratio, 1.0, 1.0) for ratio in COST_RATIOS])
    kept = weighted.sum(axis=1, keepdims=True)
    return np.asarray(weighted / kept)


def cheapest(
    surface: Surface, choice: Mapping[str, Risk], shares: Float[np.ndarray, "ratios axes"]
) -> Int[np.ndarray, " ratios"]:
    """Return the setting of least expected cost on the choice prompts at each ratio, as indices into the surface.

    Of equal ones it is the one nearest 0.5.
    """
    costs = comparable(axes_of(rates_of(surface, choice))) @ shares.T
    off = np.abs(surface.settings - 0.5).sum(axis=1)
    return np.array([np.lexsort((off, own))[0] for own in costs.T.round(9)])


@dataclass(frozen=True)
class Losses:
    """The cost of each test prompt's mistakes under one policy, a mean over COST_RATIOS.

    The prompts are those of each axis in turn, and the expected cost is the sum of the axes' means. No prompt costs
    more than its axis's `most`; these sum to 1.
    """

    rows: Int[np.ndarray, " prompts"]  # into the corpus
    axis: Shaped[np.ndarray, " prompts"]
    loss: Float[np.ndarray, " prompts"]
    judged: Bool[np.ndarray, " prompts"]  # at every ratio
    most: Mapping[str, float]

    def expected_cost(self) -> float:
        """Return the expected cost of judged prompts, between 0 and 1; NaN if an axis has none."""
        judged = [self.judged & (self.axis == name) for name in self.most]
        return float(sum(self.loss[mine].mean() if mine.any() else np.nan for mine in judged))


def least_losses(
    surface: Surface, choice: Mapping[str, Risk], test: Mapping[str, Risk], costs: Mapping[str, float]
) -> Losses:
    """Choose the cheapest setting of each ratio on the choice prompts, and count its costs on test."""
    shares = cost_shares(costs)
    here = surface.at(cheapest(surface, choice, shares))
    loss, judged = [], []
    for axis, share in zip(AXES, shares.T, strict=True):
        outcome, place = here.outcome[:, test[axis].rows], np.arange(len(test[axis].rows))
        loss.append(share @ test[axis].failed[place, outcome] / len(shares))
        judged.append(test[axis].judged[place, outcome].all(axis=0))
    return Losses(
        rows=np.concatenate([test[axis].rows for axis in AXES]),
        axis=np.repeat(np.array(AXES, dtype=object), [len(own) for own in loss]),
        loss=np.concatenate(loss),
        judged=np.concatenate(judged),
        most=dict(zip(AXES, shares.mean(axis=0).tolist(), strict=True)),
    )


def cost_saved(one: Losses, other: Losses, groups: Shaped[np.ndarray, " corpus"]) -> Estimate:
    """Return the expected cost of `other` minus that of `one`, with a 95 % interval over groups of test prompts.

    Args:
        one, other: on the same prompts; those judged under both count.
        groups: group of each prompt of the corpus.
    """
    both = one.judged & other.judged
    rows = one.rows[both]
    return sum_of_means(other.loss[both] - one.loss[both], one.axis[both], groups[rows], one.most)
