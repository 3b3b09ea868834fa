"""Shrunk covariance of activations, invertible also with fewer samples than dimensions, and LEACE by it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Shrinkage = Literal["ledoit_wolf", "oas", "bodnar"] | float


@dataclass(frozen=True)
class ShrunkCovariance:
    """(1 - shrinkage) S + shrinkage (tr S / d) I, where S = X'X / n; solved through the smaller of n and d."""

    X: Float[np.ndarray, "samples features"]  # centred
    shrinkage: float  # in [0, 1]

    def solve(self, vectors: Float[np.ndarray, "*vectors features"]) -> Float[np.ndarray, "*vectors features"]:
        """Return the inverse covariance times each row; the first call factors it, in O(n d min(n, d)).

        With fewer samples than features by Woodbury's identity: (eI + cX'X)^-1 = (I - X'(XX' + (e/c) I)^-1 X) / e.
        Raises ValueError if the covariance is singular.
        """
        if self.shrinkage == 1:
            return vectors / self._floor
        if self._by_features:
            return cho_solve(self._factor, vectors.T).T
        return (vectors - cho_solve(self._factor, self.X @ vectors.T).T @ self.X) / self._floor

    @property
    def _floor(self) -> float:
        return self.shrinkage * float(np.square(self.X).sum()) / self.X.size

    @property
    def _by_features(self) -> bool:
        return self.X.shape[0] >= self.X.shape[1] or not self.shrinkage

    @cached_property
    def _factor(self) -> tuple[np.ndarray, bool]:
        n, d = self.X.shape
        scale = (1 - self.shrinkage) / n
        inner = scale * (self.X.T @ self.X) if self._by_features else self.X @ self.X.T
        inner[np.diag_indices(len(inner))] += self._floor if self._by_features else self._floor / scale
        try:
            factor = cho_factor(inner)
            pivots = np.diag(factor[0]) ** 2 / np.diag(inner)  # unexplained share of each diagonal entry
            if pivots.min() > len(inner) * np.finfo(np.float64).eps:
                return factor
        except LinAlgError:
            pass
        raise ValueError(
            f"the covariance of {n} samples of {d} features is singular with shrinkage="
            f"{self.shrinkage:g}; use a larger shrinkage"
        )


def shrunk_covariance(X: Float[np.ndarray, "samples features"], shrinkage: Shrinkage = "bodnar") -> ShrunkCovariance:
    """Centre samples and shrink their covariance, by a named rule or by a number in [0, 1]; not all may be equal."""
    centred = X - X.mean(axis=0, dtype=np.float64)
    if not np.ptp(X, axis=0).any():
        raise ValueError("a covariance needs samples that differ; all rows are the same")
    match shrinkage:
        case "ledoit_wolf":
            return ShrunkCovariance(centred, ledoit_wolf(centred))
        case "oas":
            return ShrunkCovariance(centred, oas(centred))
        case "bodnar":
            return ShrunkCovariance(centred, bodnar(centred))
        case Real() if 0 <= shrinkage <= 1:
            return ShrunkCovariance(centred, float(shrinkage))
    raise ValueError(f"shrinkage must be 'ledoit_wolf', 'oas', 'bodnar' or a number in [0, 1], got {shrinkage!r}")


@dataclass(frozen=True)
class Eraser:
    """LEACE of binary labels, each x -> x - theta (c . (x - mean)), with c = C^-1 theta / (theta . C^-1 theta).

    This is the least-squares erasure of Belrose et al. (2023, arXiv 2306.03819) in closed form, with the covariance C
    shrunk as in the concept-erasure package and factored once for all labellings; the package decomposes a (d_model,
    d_model) matrix for each. Its `constrain_cov_trace`, which trades erasure for a smaller trace, is not used.
    """

    theta: Float[np.ndarray, "erasers features"]
    covector: Float[np.ndarray, "erasers features"]
    mean: Float[np.ndarray, " features"]  # mean of the samples; a sample at the mean does not change

    def __call__(self, X: Float[np.ndarray, "samples features"]) -> Float[np.ndarray, "samples features"]:
        """Erase the first label from samples."""
        return X - np.outer((X - self.mean) @ self.covector[0], self.theta[0])


def leace(
    theta: Float[np.ndarray, "erasers features"], covariance: ShrunkCovariance, mean: Float[np.ndarray, " features"]
) -> Eraser:
    """Return the erasers of labels, from their differences in means, the covariance and the mean of the samples."""
    solved = covariance.solve(theta)
    along = (theta * solved).sum(axis=1, keepdims=True)
    return Eraser(theta, solved / np.where(along > 0, along, np.inf), mean)


def ledoit_wolf(X: Float[np.ndarray, "samples features"]) -> float:
    """Return the shrinkage of Ledoit & Wolf (2004) for centred samples; scikit-learn's needs O(n d^2)."""
    n, d = X.shape
    trace, square = _moments(X)
    fourth = float(np.square(np.square(X).sum(axis=1)).sum()) / n  # mean squared squared norm of a sample
    distance = square - trace**2 / d  # squared Frobenius norm of S - (tr S / d) I
    return float(np.clip((fourth - square) / n / distance, 0.0, 1.0)) if distance > 0 else 1.0


def oas(X: Float[np.ndarray, "samples features"]) -> float:
    """Return the shrinkage of Chen et al. (2010) for centred samples; scikit-learn's makes the whole covariance."""
    n, d = X.shape
    trace, square = _moments(X)
    above, below = square / d**2 + (trace / d) ** 2, (n + 1) * (square - trace**2 / d) / d**2
    return min(above / below, 1.0) if below > 0 else 1.0


def bodnar(X: Float[np.ndarray, "samples features"]) -> float:
    """Return the optimal linear shrinkage of Bodnar, Gupta & Parolya (2014, arXiv 1308.2608) for centred samples.

    The concept-erasure package uses it too. For nearly isotropic samples it may exceed 1; it is then set to 1.
    """
    n, d = X.shape
    trace, square = _moments(X)
    distance = square - trace**2 / d
    return min(trace**2 / n / distance, 1.0) if distance > 1e-12 * square else 1.0


def _moments(X: np.ndarray) -> tuple[float, float]:
    """Return tr S and tr S^2, from the smaller Gram matrix, in O(n d min(n, d))."""
    n, d = X.shape
    gram = (X @ X.T if n < d else X.T @ X) / n
    return float(np.trace(gram)), float(np.square(gram).sum())
