"""A shrunk covariance that is solved without building it where there are fewer samples than features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, solve


@dataclass(frozen=True)
class ShrunkCovariance:
    """(1 - shrinkage) S + shrinkage (tr S / d) I, where S = X'X / n."""

    X: Float[np.ndarray, "n_samples d_model"]  # centred
    shrinkage: float  # in [0, 1]

    def solve(self, v: Float[np.ndarray, " d_model"]) -> Float[np.ndarray, " d_model"]:
        """Return the inverse covariance times v, in O(n d min(n, d)).

        With fewer samples than features by Woodbury's identity: (eI + cX'X)^-1 = (I - X'(XX' + (e/c) I)^-1 X) / e.

        Raises:
            ValueError: the covariance is singular.
        """
        n, d = self.X.shape
        floor = self.shrinkage * float(np.square(self.X).sum()) / (n * d)
        scale = (1 - self.shrinkage) / n
        if floor and not scale:
            return v / floor
        try:
            if n >= d or not floor:
                return solve(scale * (self.X.T @ self.X) + floor * np.eye(d), v, assume_a="pos")
            inner = solve(self.X @ self.X.T + floor / scale * np.eye(n), self.X @ v, assume_a="pos")
        except LinAlgError:
            raise ValueError(
                f"the covariance of {n} samples of {d} features within their classes is singular with "
                f"shrinkage={self.shrinkage:g}; take a greater shrinkage"
            ) from None
        return (v - self.X.T @ inner) / floor


def ledoit_wolf(X: Float[np.ndarray, "n_samples d_model"]) -> float:
    """Return the shrinkage of Ledoit & Wolf (2004) for centred samples, in O(n d min(n, d))."""
    n, d = X.shape
    trace, square = _moments(X)
    fourth = float(np.square(np.square(X).sum(axis=1)).sum()) / n  # mean squared squared norm of a sample
    distance = square - trace**2 / d  # squared Frobenius norm of S - (tr S / d) I
    error = (fourth - square) / n
    return float(np.clip(error / distance, 0.0, 1.0)) if distance > 0 else 1.0


def oas(X: Float[np.ndarray, "n_samples d_model"]) -> float:
    """Return the oracle-approximating shrinkage (Chen et al. 2010, as in scikit-learn) for centred samples.

    In O(n d min(n, d)).
    """
    n, d = X.shape
    trace, square = _moments(X)
    above, below = square / d**2 + (trace / d) ** 2, (n + 1) * (square - trace**2 / d) / d**2
    return min(above / below, 1.0) if below > 0 else 1.0


def _moments(X: np.ndarray) -> tuple[float, float]:
    """Return tr S and tr S^2 by the smaller Gram matrix."""
    n, d = X.shape
    gram = (X @ X.T if n < d else X.T @ X) / n
    return float(np.trace(gram)), float(np.square(gram).sum())
