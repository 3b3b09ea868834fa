"""Iterative nullspace projection: fit a direction, project it out, and again (Ravfogel et al., arXiv 2004.07667)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

VANISHED = 1e-9  # of its length: what is left of a fit where nothing outside the earlier directions was found


def nullspace_directions(
    fit: Callable[[Float[np.ndarray, "fits found features"]], Float[np.ndarray, "fits features"]],
    n_fits: int,
    k: int,
    n_features: int,
) -> Float[np.ndarray, "fits k features"]:
    """Return k orthonormal directions of each of several fits; a direction is zero where a fit finds nothing more.

    Args:
        fit: returns the next direction of each fit, of any length, given the orthonormal ones found so far; zero where
            nothing is left to find.
    """
    basis = np.zeros((n_fits, k, n_features))
    for i in range(k):
        fitted = fit(basis[:, :i])
        left = fitted
        for _ in range(2):  # twice is enough to be orthogonal to rounding (Kahan)
            left = project_out(left[:, None], basis[:, :i])[:, 0]
        before, length = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (fitted, left))
        basis[:, i] = np.where(length > VANISHED * before, left / np.where(length > 0, length, 1), 0)
    return basis


def project_out(
    X: Float[np.ndarray, "*fits samples features"], directions: Float[np.ndarray, "*fits k features"]
) -> Float[np.ndarray, "*fits samples features"]:
    """Project orthonormal directions out of samples."""
    return X - (X @ np.swapaxes(directions, -1, -2)) @ directions
