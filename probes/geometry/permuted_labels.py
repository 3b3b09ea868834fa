"""Permuted labels of one contrast, and of two that share samples."""

from __future__ import annotations

import zlib

import numpy as np

from probes.contrast import Contrast
from probes.grid.nulls import permute_labels


def permuted_labels(contrast: Contrast, n: int, seed: int) -> np.ndarray:
    """Draw n labellings of a contrast's training rows, permuted as the labels were given; (n, n_train) bool.

    The draw depends on the contrast's name too, so that two contrasts of one shape are permuted independently.
    """
    inside = contrast.within("train")
    y, rng = (
        np.asarray(contrast.y[inside], dtype=bool),
        np.random.default_rng([seed, zlib.crc32(contrast.name.encode())]),
    )
    _, groups = np.unique(contrast.groups[inside], return_inverse=True)
    return np.stack([permute_labels(y, groups, rng) for _ in range(n)])


def jointly_permuted_roles(roles: np.ndarray, groups: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Permute what samples are in two contrasts at once; (n, n_samples) of the given codes.

    Two contrasts that share samples (the same benign prompts as negatives of both) have directions that share noise, so
    their cosine is not zero for labels without information: with equal numbers it is near 0.5. Permuting each
    contrast's labels alone would lose that. So the role of a sample in both (positive, negative or absent) is permuted
    as one, by the rule of `probes.grid.nulls.permute_labels`: within groups that hold several, else among whole groups.

    Args:
        roles: (n_samples,) int codes.
        groups: (n_samples,) what belongs together.
    """
    rng = np.random.default_rng([seed, zlib.crc32(b"roles")])
    _, code = np.unique(groups, return_inverse=True)
    by_group = np.argsort(code, kind="stable")
    first = by_group[np.searchsorted(code[by_group], np.arange(code.max() + 1))]
    pure = np.bincount(code, weights=roles != roles[first][code]) == 0
    drawn = np.empty((n, len(roles)), dtype=roles.dtype)
    for row in drawn:
        row[by_group] = roles[np.lexsort((rng.random(len(roles)), code))]
        role = roles[first].copy()
        role[pure] = rng.permutation(role[pure])
        row[:] = np.where(pure[code], role[code], row)
    return drawn
