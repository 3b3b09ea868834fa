"""A contrast: the samples of two classes that a probe separates, with their groups and parts; division into parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Integer, Shaped


@dataclass(frozen=True, repr=False)
class Contrast:
    """The samples that a probe separates: `rows` are indices of samples, `y` marks the declining class.

    Lists, and `y` of 0 and 1, are converted to the arrays below.

    Raises:
        ValueError: lengths differ, or a row, label or group is invalid; names the contrast and the first invalid one.
    """

    name: str
    rows: Integer[np.ndarray, " samples"]  # indices of samples, each once
    y: Bool[np.ndarray, " samples"]
    groups: Shaped[np.ndarray, " samples"]  # samples that belong together: a pair, a template, an entity
    part: Shaped[np.ndarray, " samples"]  # "train", "validation", "test"; samples with other values are not used

    def __post_init__(self) -> None:
        shapes = {}
        for field in ("rows", "y", "groups", "part"):
            object.__setattr__(self, field, np.asarray(getattr(self, field)))
            shapes[field] = getattr(self, field).shape
        if len(set(shapes.values())) > 1 or self.rows.ndim != 1:
            given = ", ".join(f"{field} {shape}" for field, shape in shapes.items())
            raise ValueError(f"contrast {self.name!r} needs one-dimensional columns of equal length; got {given}")
        object.__setattr__(self, "rows", self.rows if len(self.rows) else np.zeros(0, dtype=int))
        self._check_rows()
        if self.y.dtype != bool and (strange := [label for label in self.y.tolist() if label not in (0, 1)]):
            raise ValueError(
                f"contrast {self.name!r}: y marks the declining class and must be boolean, or 0 "
                f"and 1; got {strange[0]!r}"
            )
        object.__setattr__(self, "y", self.y.astype(bool))
        self._check_groups()

    def __repr__(self) -> str:
        n_groups = len(set(self.groups.tolist()))
        return f"Contrast({self.name!r}, {int(self.y.sum())} positive of {len(self.y)} samples, {n_groups} groups)"

    def within(self, part: str, *, both_classes: bool = False) -> Integer[np.ndarray, " part"]:
        """Return the indices, into `rows`, of one part; ValueError if it lacks a class that is needed."""
        inside = np.flatnonzero(self.part == part)
        if both_classes and len(set(self.y[inside].tolist())) < 2:
            given = f"{int(self.y[inside].sum())} positive of {len(inside)}"
            raise ValueError(f"contrast {self.name!r} needs both classes in its {part} part; got {given}")
        return inside

    def _check_rows(self) -> None:
        rows = self.rows
        if not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(
                f"contrast {self.name!r}: rows must be integer indices of samples; got {rows.dtype} "
                "(np.flatnonzero converts a mask)"
            )
        if len(rows) and rows.min() < 0:
            raise ValueError(f"contrast {self.name!r}: rows must be 0 or greater; got {rows.min()}")
        once, times = np.unique(rows, return_counts=True)
        if (times > 1).any():
            raise ValueError(
                f"contrast {self.name!r}: each row must occur once, else a probe could be tested on its "
                f"training samples; row {once[times > 1][0]} occurs {times.max()} times"
            )

    def _check_groups(self) -> None:
        missing = [
            row for row, group in zip(self.rows, self.groups.tolist(), strict=True) if group is None or group != group
        ]
        if missing:
            raise ValueError(
                f"contrast {self.name!r}: {len(missing)} samples have no group, the first is row "
                f"{missing[0]}; give each independent sample its own group"
            )
        if self.groups.dtype == object and len({type(group) for group in self.groups}) > 1:
            raise ValueError(
                f"contrast {self.name!r}: groups must be all text or all numbers; "
                f"got {self.groups[0]!r} and values of another type"
            )


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
