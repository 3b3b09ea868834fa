"""Samples of two classes, separated along a known direction in correlated noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Planted:
    """Where the classes differ and how the noise is correlated; draws samples."""

    shift: np.ndarray  # (d_model,) mean of the positive class minus mean of the negative
    root: np.ndarray  # (d_model, d_model) noise is standard normal times this
    offset: float = 0.0

    def draw(self, n: int, seed: int, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        y = rng.permutation(np.arange(n) < round(share * n))
        X = rng.standard_normal((n, len(self.shift))) @ self.root + np.outer(y - 0.5, self.shift)
        return X + self.offset, y


def plant(d: int, gap: float, steepness: float = 1.0, seed: int = 0, offset: float = 0.0) -> Planted:
    """Plant classes `gap` apart; the noise's standard deviation falls from 1 to 1 / steepness over rotated axes."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    shift = rng.standard_normal(d)
    root = np.geomspace(1, 1 / steepness, d)[:, None] * rotation
    return Planted(gap * shift / np.linalg.norm(shift), root, offset)


@pytest.fixture(name="plant")
def plant_fixture():
    return plant
