"""Iterative nullspace projection (INLP): repeatedly fit a direction and project it out (arXiv 2004.07667)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

VANISHED = 1e-9  # relative length below which a fit has no component outside the earlier directions


def nullspace_directions(
    fit: Callable[[Float[np.ndarray, "fits found features"]], Float[np.ndarray, "fits features"]],
    n_fits: int,
    k: int,
    n_features: int,
) -> Float[np.ndarray, "fits k features"]:
    """Return k orthonormal directions for each of several fits; a direction is zero if a fit finds no further one.

    Args:
        fit: returns the next direction of each fit, of any length, given the orthonormal ones so far; zero if there is
            no further one.
        n_fits: the number of fits.
        k: the number of directions per fit.
        n_features: the dimension.
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
