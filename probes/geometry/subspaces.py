"""Subspaces in which a contrast can be read, and the principal angles between two, beside those of permuted labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.covariance import ShrunkCovariance, shrunk_covariance
from probes.geometry.angles import principal_angles
from probes.geometry.fitted_direction import Fitted, same_locus
from probes.geometry.permutation_null import PermutedP, against_permuted, jointly_permuted


@dataclass(frozen=True)
class Subspace:
    """Orthonormal rows that a contrast gives, and those its permuted labels give."""

    of: Fitted
    rows: np.ndarray  # (k, d_model)
    permuted: np.ndarray  # (n_permutations, k, d_model)
    covariance: ShrunkCovariance


@dataclass(frozen=True)
class Angles:
    """Principal angles in radians, smallest first; `permuted` is of the smallest one's cosine."""

    a: str
    b: str
    angles: np.ndarray
    permuted: PermutedP

    @property
    def cosine(self) -> float:
        """The cosine of the smallest angle."""
        return float(np.cos(self.angles[0]))


def reading_subspace(fitted: Fitted, k: int) -> Subspace:
    """Return the k directions of iterated nullspace projection (INLP; Ravfogel et al. 2020, arXiv 2004.07667).

    The classifier is the mass-mean probe w = C^-1 (mu+ - mu-) (Marks & Tegmark, arXiv 2310.06824), C the shrunk
    covariance of the training rows; each next one is fitted where the earlier ones have been projected out. For this
    classifier the k directions span C^-1 theta, ..., C^-k theta, so all permuted labellings are fitted at once. (With C
    pooled within classes w is the same up to scale; the strength of shrinkage is held fixed.)

    Two other definitions do not do: a difference in means, once projected out, leaves no difference in means, and the
    principal components of the pairs' differences (Zou et al. 2023, arXiv 2310.01405) do not depend on their signs, so
    permuting the labels within pairs gives the same subspace.

    Where the covariance is as good as isotropic the rest of the directions are zero: nothing tells them apart.

    Raises:
        ValueError: k is below 1 or above d_model.
    """
    X, _, _ = fitted.samples("train")
    if not 1 <= k <= X.shape[1]:
        raise ValueError(f"a subspace has 1 to d_model = {X.shape[1]} dimensions; got {k}")
    covariance = shrunk_covariance(X)
    rows = _iterated(fitted.means(), covariance, k)
    return Subspace(fitted, rows[0], rows[1:], covariance)


def compare_reading(a: Subspace, b: Subspace) -> Angles:
    """Return the principal angles between two contrasts' reading subspaces with their null.

    Where the contrasts share rows both are permuted as one; each then keeps the covariance of its own rows.

    Raises:
        ValueError: they are not of one locus.
    """
    same_locus(a.of, b.of)
    joint = jointly_permuted(a.of, b.of, of_means=True)
    if joint is not None:
        joint = (_iterated(joint[0], a.covariance, len(a.rows)), _iterated(joint[1], b.covariance, len(b.rows)))
    names = a.of.contrast.name, b.of.contrast.name
    return Angles(*names, *_angles((a.rows, a.permuted), (b.rows, b.permuted), joint))


def compare_subspaces(a: tuple[str, np.ndarray, np.ndarray], b: tuple[str, np.ndarray, np.ndarray]) -> Angles:
    """Return the principal angles between any two subspaces, a reading and a writing one for instance.

    Args:
        a, b: name, rows (k, d_model), and the rows that permuted labels give (n_permutations, k, d_model); k may
            differ. The rows need not be orthonormal. They must come from contrasts that share no samples.

    Raises:
        ValueError: shapes disagree.
    """
    for name, rows, permuted in (a, b):
        if rows.ndim != 2 or permuted.ndim != 3 or permuted.shape[1:] != rows.shape:
            raise ValueError(f"subspace {name!r} needs rows (k, d_model) and permuted (n, k, d_model); "
                             f"got {rows.shape} and {permuted.shape}")  # fmt: skip
    if a[1].shape[1] != b[1].shape[1] or len(a[2]) != len(b[2]):
        raise ValueError(f"{a[0]!r} and {b[0]!r} differ in d_model or in their number of permutations: "
                         f"{a[2].shape} and {b[2].shape}")  # fmt: skip
    flat_a, flat_b = ((_orthonormal(rows[None])[0], _orthonormal(permuted)) for _, rows, permuted in (a, b))
    return Angles(a[0], b[0], *_angles(flat_a, flat_b))


def _angles(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    joint: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, PermutedP]:
    return principal_angles(a[0], b[0]), against_permuted(_largest_cosine, a, b, joint)


def _largest_cosine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the cosine of the smallest angle between orthonormal rows, (n,)."""
    return np.linalg.norm(A @ np.swapaxes(B, -1, -2), ord=2, axis=(-2, -1))


def _iterated(means: np.ndarray, covariance: ShrunkCovariance, k: int) -> np.ndarray:
    """Return orthonormal rows of the first k fits for each difference in means, (n, k, d_model)."""
    basis = np.zeros((len(means), k, means.shape[1]))
    latest = means
    for i in range(k):
        solved = covariance.solve(latest)
        before = np.linalg.norm(solved, axis=1, keepdims=True)
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            solved = solved - np.einsum("nk,nkd->nd", np.einsum("nkd,nd->nk", basis, solved), basis)
        length = np.linalg.norm(solved, axis=1, keepdims=True)
        basis[:, i] = latest = np.where(length > 1e-9 * before, solved / np.where(length > 0, length, 1), 0)
    return basis


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """Return orthonormal rows of the same spans, zero where a row adds nothing; (n, k, d_model)."""
    _, s, vh = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    return vh * (s > 1e-9 * s[:, :1])[..., None]
