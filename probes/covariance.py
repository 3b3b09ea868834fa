"""A shrunk covariance of activations that can be inverted where there are fewer samples than dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve


@dataclass(frozen=True)
class ShrunkCovariance:
    """alpha S + beta I, for the covariance S of centred samples; inverted through the smaller of d_model and n."""

    centred: np.ndarray  # (n_samples, d_model)
    alpha: float
    beta: float
    factor: tuple[np.ndarray, bool]

    def solve(self, vectors: np.ndarray) -> np.ndarray:
        """Return the inverse covariance times each row, (n_vectors, d_model)."""
        n, d = self.centred.shape
        if d <= n:
            return cho_solve(self.factor, vectors.T).T
        # Woodbury: the inverse of a multiple of I plus a matrix of rank n
        within = cho_solve(self.factor, self.centred @ vectors.T).T @ self.centred
        return (vectors - self.alpha * within) / self.beta


def shrunk_covariance(X: np.ndarray) -> ShrunkCovariance:
    """Shrink the covariance of (n_samples, d_model) towards a multiple of the identity.

    The optimal linear shrinkage of Bodnar, Gupta & Parolya (2014, arXiv 1308.2608), which the concept-erasure package
    uses too. Of samples as good as isotropic its alpha falls below zero; then it is zero.

    Raises:
        ValueError: the samples do not vary.
    """
    centred = X - X.mean(axis=0, dtype=np.float64)
    n, d = centred.shape
    gram = centred.T @ centred if d <= n else centred @ centred.T
    trace, square = float(np.trace(gram)) / n, float((gram**2).sum()) / n**2
    if trace <= 0:
        raise ValueError("a covariance needs samples that vary; all rows are the same")
    spread = square - trace**2 / d  # zero where S is a multiple of the identity
    kept = 1 - (trace**2 / n) / spread if spread > 1e-12 * square else 0.0
    alpha = float(np.clip(kept, 0.0, 1.0))
    beta = max((1 - alpha) * trace / d, 1e-9 * trace / d)
    inner = alpha * gram / n if d <= n else alpha * gram
    inner[np.diag_indices(len(inner))] += beta if d <= n else n * beta
    return ShrunkCovariance(centred, alpha, beta, cho_factor(inner))
