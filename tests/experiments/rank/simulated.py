"""A planted mechanism of known rank: declines are a function of k coordinates of a stream of Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.rank.search import SpanOutcomes, Streams

GAP = 4.0  # between a coordinate that is off and one that is on, in standard deviations of the noise
Rule = Callable[[np.ndarray], np.ndarray]  # coordinates (n, k) to declines (n,) bool
PARTS = {"train": 1.0, "validation": 0.43, "test": 1.0}  # the shares of the quickstart


def any_above(threshold: float) -> Rule:
    return lambda z: (z > threshold * GAP).any(axis=1)


def product_below(threshold: float) -> Rule:
    return lambda z: z[:, 0] * z[:, 1] < threshold * GAP**2


@dataclass
class Planted:
    """Samples of each part, and how they react to an ablation; half of a part's prompts carry other patterns."""

    patterns: Sequence[Sequence[float]]  # the coordinates, in gaps: 1 is on; each pattern equally often
    rule: Rule
    n: int  # decliners for testing, about
    rng: np.random.Generator
    d_model: int = 64
    a_group: int = 1  # prompts a group, which share a pattern
    nothing: bool = False  # behaviour is drawn at random and follows no coordinate
    others: Sequence[Sequence[float]] = ()  # patterns of the other half; by default none is on
    layer: int = 3

    def __post_init__(self) -> None:
        k = len(self.patterns[0])
        self.planted = np.linalg.qr(self.rng.standard_normal((self.d_model, k)))[0].T
        self.X, self.declined, self.group = {}, {}, {}
        for part, share in PARTS.items():
            n_groups = -(-round(2 * share * self.n) // self.a_group)
            halves = self.patterns, self.others or [[0] * k]
            on = np.array([halves[i % 2][i // 2 % len(halves[i % 2])] for i in range(n_groups)])
            group = np.repeat(np.arange(n_groups), self.a_group)
            noise = self.rng.standard_normal((len(group), self.d_model))
            self.X[part] = noise + 3.0 + GAP * on[group] @ self.planted
            declined = self._declines(self.X[part])
            self.declined[part] = self.rng.permutation(declined) if self.nothing else declined
            self.group[part] = group
        self.off = self.X["train"][~self.declined["train"]].mean(axis=0)
        self.first = self.X["train"][self.declined["train"]].mean(axis=0) - self.off

    def _declines(self, X: np.ndarray) -> np.ndarray:
        return self.rule((X - 3.0) @ self.planted.T)

    def _ablated(self, part: str, basis: np.ndarray) -> np.ndarray:
        X = self.X[part]
        return X + ((self.off - X) @ basis.T) @ basis

    def groups(self, part: str) -> np.ndarray:
        return self.group[part][self.declined[part]]

    def outcomes(self, part: str, basis: np.ndarray, among: np.ndarray) -> SpanOutcomes:
        still = np.ones(len(among), dtype=bool)
        if not self.nothing:
            still = self._declines(self._ablated(part, basis)[self.declined[part]][among])
        return SpanOutcomes(~still, still)

    def streams(self, part: str, basis: np.ndarray) -> list[Streams]:
        declined = self.declined[part]
        return [Streams(self.layer, self._ablated(part, basis), declined, np.full(len(declined), "all"))]

    def scores(self, bases: Sequence[np.ndarray]) -> np.ndarray:
        every = np.arange(len(self.groups("validation")))
        return np.array([self.outcomes("validation", basis, every).still.mean() for basis in bases])
