"""Splits that never separate what belongs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def linked_groups(*keys: Sequence[str | None]) -> np.ndarray:
    """Number the connected components of samples that share a value in any of the columns; (n_samples,) int.

    A sample without any value is a group of its own.
    """
    n = len(keys[0])
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for column in keys:
        first: dict[str, int] = {}
        for i, value in enumerate(column):
            if value:
                parent[root(i)] = root(first.setdefault(value, i))
    _, numbered = np.unique([root(i) for i in range(n)], return_inverse=True)
    return numbered


def group_split(groups: np.ndarray, strata: Sequence[str], shares: Mapping[str, float], seed: int) -> np.ndarray:
    """Assign each sample to a named part, whole groups at a time; returns (n_samples,) of part names.

    Groups are dealt, in random order within each stratum (a group's stratum is its first sample's), to the part
    furthest below its share, so that every part gets its share of every stratum.
    """
    total = sum(shares.values())
    rng = np.random.default_rng(seed)
    members = {g: np.flatnonzero(groups == g) for g in np.unique(groups)}
    parts = np.empty(len(groups), dtype=object)
    stratum_of = {g: strata[int(rows[0])] for g, rows in members.items()}
    for stratum in sorted(set(stratum_of.values())):
        given = dict.fromkeys(shares, 0.0)
        for g in rng.permutation([g for g in members if stratum_of[g] == stratum]):
            part = min(shares, key=lambda name: (given[name] + len(members[g]) / 2) / (shares[name] / total))
            parts[members[g]] = part
            given[part] += len(members[g])
    return parts
