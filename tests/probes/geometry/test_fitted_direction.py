"""The permutation null of a fitted direction: respects groups, and differs between contrasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.contrast import Contrast
from probes.geometry.fitted_direction import fit_with_null
from tests.support.planted_contrasts import Planted

X, A, B = Planted(n=40).draw(0)


def _labels(contrast: Contrast) -> np.ndarray:
    return fit_with_null(X, contrast, n=50, seed=0).labels[1:]


def test_pairs_keep_one_label_of_each() -> None:
    labels = _labels(A)
    assert (np.add.reduceat(labels, np.arange(0, 40, 2), axis=1) == 1).all()
    assert 0.4 < labels.mean() < 0.6
    assert (_labels(A) == labels).all()
    assert (_labels(replace(B, rows=A.rows, groups=A.groups, y=A.y)) != labels).any()  # another name
