"""What a probe tells apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Contrast:
    """Which samples a probe tells apart: `rows` index all samples, `y` is the declining class among them."""

    name: str
    rows: np.ndarray  # (n,) int
    y: np.ndarray  # (n,) bool
    groups: np.ndarray  # (n,) what belongs together: a pair, a template, an entity
    part: np.ndarray  # (n,) "train", "validation", "test" or anything else, which is left out

    def within(self, part: str) -> np.ndarray:
        """Return the indices, into `rows`, of one part."""
        return np.flatnonzero(self.part == part)
