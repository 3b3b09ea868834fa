"""Two dials against one, against a system line and against none: Pareto frontiers on test prompts, by hypervolume.

A policy's frontier holds the settings that no other beats on the prompts that choose (never on test: the best of many
on the reported prompts would flatter whoever has more settings, which two dials have). Their rates on test are the
points; the plain model is a point of every policy, since a dial can be left off. The volume is that of the unit cube of
(over-refusal, missed harm, overconfidence) which the points dominate. Differences of volumes are paired: test prompts
are drawn again, whole groups at a time, the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.dials.surface import AXES, Risk, Surface, axes_of, rates_of
from probes.statistics.pareto import front, hypervolume

N_DRAWS = 500
REFERENCE = (1.0, 1.0, 1.0)
MOST_POINTS = 60  # of a frontier; more of them add next to no volume


@dataclass(frozen=True)
class Policy:
    """Points of one way of moving the trade-off: their test rates, and the same of every bootstrap draw."""

    name: str
    points: np.ndarray  # (n_points, 3) rates on test
    drawn: np.ndarray  # (n_draws, n_points, 3)

    @property
    def volume(self) -> float:
        return hypervolume(self.points, REFERENCE)

    def volumes(self) -> np.ndarray:
        """Return the volume of every draw, (n_draws,)."""
        return np.array([hypervolume(points, REFERENCE) for points in self.drawn])

    def beside(self, plain: Policy) -> Policy:
        """Return the policy with the plain model among its points."""
        return Policy(self.name, np.concatenate([self.points, plain.points]),
                      np.concatenate([self.drawn, plain.drawn], axis=1))  # fmt: skip


def frontier(surface: Surface, choice: Mapping[str, Risk]) -> np.ndarray:
    """Return the settings that no other beats on the prompts that choose, MOST_POINTS at most.

    Indices into the surface, in order of the first axis.
    """
    points = axes_of(rates_of(surface, choice))
    kept = front(points)
    kept = kept[np.lexsort(points[kept].T[::-1])]
    if len(kept) > MOST_POINTS:
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).round().astype(int))]
    return kept


def draw_groups(groups: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Draw groups with replacement; returns how often each row counts in each draw, (n_rows, n_draws)."""
    _, code = np.unique(groups, return_inverse=True)
    n = code.max() + 1
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_draws)  # (n_draws, n_groups)
    return counts.T[code]


def policy(name: str, surface: Surface, test: Mapping[str, Risk], weights: np.ndarray) -> Policy:
    """Measure some settings on test.

    Args:
        weights: (n_prompts, n_draws) over the whole corpus.
    """
    drawn = {axis: surface.rates(test[axis], weights[test[axis].rows]) for axis in AXES}
    return Policy(name, axes_of(rates_of(surface, test)), np.swapaxes(axes_of(drawn), 0, 1))


def compare(one: Policy, other: Policy) -> dict[str, float]:
    """Return the difference of two volumes with its 95 % bootstrap interval."""
    low, high = np.quantile(one.volumes() - other.volumes(), [0.025, 0.975])
    return {"estimate": one.volume - other.volume, "low": float(low), "high": float(high)}


def volume_record(policy: Policy) -> dict[str, Any]:
    """Return a volume with its 95 % bootstrap interval and the number of points behind it."""
    low, high = np.quantile(policy.volumes(), [0.025, 0.975])
    return {"estimate": policy.volume, "low": float(low), "high": float(high), "points": len(policy.points)}
