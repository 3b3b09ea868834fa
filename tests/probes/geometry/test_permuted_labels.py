"""Labellings are permuted as the labels were given, also of two contrasts at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.geometry.permuted_labels import jointly_permuted_roles, permuted_labels
from tests.support.planted_contrasts import Planted


def test_pairs_keep_one_label_of_each() -> None:
    _, a, b = Planted(n=40).draw(0)
    labels = permuted_labels(a, 50, seed=0)
    assert (np.add.reduceat(labels, np.arange(0, 40, 2), axis=1) == 1).all()
    assert 0.4 < labels.mean() < 0.6
    assert (permuted_labels(a, 50, seed=0) == labels).all()
    assert (permuted_labels(replace(b, groups=a.groups, y=a.y), 50, seed=0) != labels).any()  # another name


def test_roles_move_within_mixed_groups_and_among_pure_ones() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4])
    roles = np.array([6, 4, 1, 6, 6, 1, 4, 4, 1])
    drawn = jointly_permuted_roles(roles, groups, 300, seed=1)
    assert {tuple(sorted(row[:3])) for row in drawn} == {(1, 4, 6)}
    assert {tuple(row[:3]) for row in drawn} == {(6, 4, 1), (6, 1, 4), (4, 6, 1), (4, 1, 6), (1, 4, 6), (1, 6, 4)}
    assert all(row[3] == row[4] and row[6] == row[7] for row in drawn)
    assert {tuple(row[[3, 5, 6, 8]]) for row in drawn} == {
        (x, y, z, w) for x in (6, 1, 4) for y in (6, 1, 4) for z in (6, 1, 4) for w in (6, 1, 4)
        if sorted((x, y, z, w)) == [1, 1, 4, 6]
    }  # fmt: skip
