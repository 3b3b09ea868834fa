"""Splits samples into named parts, with groups kept whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Shaped


def group_split(
    groups: Shaped[np.ndarray, " samples"], strata: Sequence[str], shares: Mapping[str, float], seed: int
) -> Shaped[np.ndarray, " samples"]:
    """Assign each sample to a named part, with groups kept whole; return the part names.

    Within each stratum (a group's stratum is that of its first sample), groups in random order go to the part that is
    furthest below its share, so that every part gets its share of every stratum.
    """
    total = sum(shares.values())
    rng = np.random.default_rng(seed)  # not a named stream, so that runs of older versions keep their splits
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
