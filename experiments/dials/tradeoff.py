"""Pareto frontiers and hypervolumes on test prompts of two dials, one dial, system lines and the plain model.

A policy's frontier holds the Pareto-optimal settings on the choice prompts. It is not chosen on test: the best of many
settings there would favour policies with more settings, such as two dials. The points are the rates of these settings
on test; the plain model is a point of every policy, since a dial can be off. The hypervolume is the share of the unit
cube of (over_refusal, missed_harm, overconfidence) that the points dominate. Differences are paired: a bootstrap over
whole groups of test prompts uses the same draws for both policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from experiments.dials.results import HypervolumeEstimate
from experiments.dials.surface import AXES, Risk, Surface, axes_of, rates_of
from probes.statistics.pareto import front, hypervolume
from probes.statistics.seeds import named_rng
from scoring.estimate import Estimate

N_DRAWS = 500
REFERENCE = (1.0, 1.0, 1.0)
MOST_POINTS = 60  # of a frontier; more add almost no hypervolume


@dataclass(frozen=True)
class Policy:
    """Points of one way of moving the trade-off: their test rates, and the same of every bootstrap draw."""

    name: str
    points: Float[np.ndarray, "points 3"]  # rates on test
    drawn: Float[np.ndarray, "draws points 3"]

    @property
    def volume(self) -> float:
        return hypervolume(self.points, REFERENCE)

    def volumes(self) -> Float[np.ndarray, " draws"]:
        """Return the hypervolume of every draw."""
        return np.array([hypervolume(points, REFERENCE) for points in self.drawn])

    def with_plain(self, plain: Policy) -> Policy:
        """Return the policy with the plain model among its points."""
        return Policy(self.name, np.concatenate([self.points, plain.points]),
                      np.concatenate([self.drawn, plain.drawn], axis=1))  # fmt: skip


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


def draw_groups(groups: Int[np.ndarray, " rows"], n_draws: int, seed: int) -> Int[np.ndarray, "rows draws"]:
    """Draw groups with replacement; return how often each row counts in each bootstrap draw."""
    _, code = np.unique(groups, return_inverse=True)
    n = code.max() + 1
    counts = named_rng(seed, "bootstrap of groups").multinomial(
        n, np.full(n, 1 / n), size=n_draws
    )  # (n_draws, n_groups)
    return counts.T[code]


def evaluate_policy(
    name: str, surface: Surface, test: Mapping[str, Risk], weights: Float[np.ndarray, "prompts draws"]
) -> Policy:
    """Measure some settings of a policy on test.

    Args:
        weights: bootstrap counts of every prompt of the corpus.
    """
    drawn = {axis: surface.rates(test[axis], weights[test[axis].rows]) for axis in AXES}
    return Policy(name, axes_of(rates_of(surface, test)), np.swapaxes(axes_of(drawn), 0, 1))


def hypervolume_difference(one: Policy, other: Policy) -> Estimate:
    """Return the difference of two policies' hypervolumes with its 95 % bootstrap interval."""
    low, high = np.quantile(one.volumes() - other.volumes(), [0.025, 0.975])
    return Estimate(estimate=one.volume - other.volume, low=low, high=high)


def hypervolume_estimate(policy: Policy) -> HypervolumeEstimate:
    """Return a policy's hypervolume with its 95 % bootstrap interval and its number of points."""
    low, high = np.quantile(policy.volumes(), [0.025, 0.975])
    return HypervolumeEstimate(estimate=policy.volume, low=low, high=high, points=len(policy.points))
