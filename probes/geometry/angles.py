"""How two directions lie to each other."""

from __future__ import annotations

import numpy as np
from scipy.linalg import subspace_angles


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def principal_angles(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the principal angles in radians between the row spaces of A (k, d) and B (m, d), smallest first.

    There are as many as the smaller *rank*: a repeated row adds no angle.
    """
    return subspace_angles(A.T.astype(np.float64), B.T.astype(np.float64))[::-1]
