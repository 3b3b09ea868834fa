"""Cosine of two directions, and principal angles between two subspaces."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import subspace_angles


def cosine(a: Float[np.ndarray, " features"], b: Float[np.ndarray, " features"]) -> float:
    """Return the cosine of the angle between two vectors."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def principal_angles(
    A: Float[np.ndarray, "k features"], B: Float[np.ndarray, "m features"]
) -> Float[np.ndarray, " angles"]:
    """Return the principal angles in radians between the row spaces of A and B, smallest first.

    Their number is the smaller *rank*: a repeated row adds no angle.
    """
    return subspace_angles(A.T.astype(np.float64), B.T.astype(np.float64))[::-1]
