"""Two contrasts with known directions in one array of activations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.contrast import Contrast

PARTS = np.array(["train", "validation", "test"], dtype=object)


@dataclass(frozen=True)
class Planted:
    """How two contrasts of n samples each are made; the first is along e1, the second at `cosine` to it."""

    n: int = 200
    d: int = 16
    cosine: float = 0.0
    strength_a: float = 3.0
    strength_b: float = 3.0
    dominant: float = 1.0  # standard deviation along e0, 1 along every other axis
    paired: bool = True
    split: bool = False  # into train, validation and test, whole groups
    offset: float = 0.0

    def draw(self, seed: int) -> tuple[np.ndarray, Contrast, Contrast]:
        rng, n = np.random.default_rng([97, seed]), self.n
        X = rng.standard_normal((2 * n, self.d))
        X[:, 0] *= self.dominant
        if self.paired:
            groups, y = np.repeat(np.arange(n), 2), np.tile([True, False], n)
            X += rng.standard_normal((n, self.d))[groups]  # what a pair shares
            y = np.where(rng.random(n)[groups] < 0.5, y, ~y)
        else:
            groups, y = np.arange(2 * n), np.concatenate([rng.permutation(np.arange(n) % 2 == 0) for _ in range(2)])
        b = np.zeros(self.d)
        b[1:3] = self.cosine, np.sqrt(1 - self.cosine**2)
        X[:n, 1] += self.strength_a * y[:n]
        X[n:] += self.strength_b * y[n:, None] * b
        part = PARTS[rng.choice(3, 2 * n, p=[0.5, 0.2, 0.3])][groups] if self.split else np.full(2 * n, "train", object)
        halves = slice(n), slice(n, None)
        one, two = (
            Contrast(name, np.arange(2 * n)[half], y[half], groups[half], part[half])
            for name, half in zip(("normative", "epistemic"), halves, strict=True)
        )
        return X + self.offset, one, two


def rejects_too_often(p: np.ndarray, level: float = 0.05) -> bool:
    """Say whether so many p-values at or below the level are unlikely (1 in 1000) of an honest test."""
    from scipy.stats import binom

    return bool((p <= level + 1e-12).sum() > binom.ppf(0.999, len(p), level))
