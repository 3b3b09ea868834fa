"""Rows of unlike lengths in HDF5: all numbers in one `values` array, and where each row begins in `offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import h5py
import numpy as np


def write_ragged(file: h5py.File, name: str, rows: Sequence[Sequence[int]]) -> None:
    """Write integer rows as the group NAME of `values` and `offsets` (n_rows + 1)."""
    lengths = np.array([0, *(len(row) for row in rows)], dtype=np.int64)
    values = np.fromiter((v for row in rows for v in row), dtype=np.int32, count=int(lengths.sum()))
    write_checked(file, f"{name}/offsets", lengths.cumsum())
    write_checked(file, f"{name}/values", values)


def read_ragged(file: h5py.File, name: str) -> list[np.ndarray]:
    """Return the rows of a ragged group."""
    values, offsets = file[f"{name}/values"][:], file[f"{name}/offsets"][:]
    return [values[a:b] for a, b in pairwise(offsets)]


def write_checked(file: h5py.File, name: str, data: np.ndarray) -> None:
    """Write an array whose bytes HDF5 checks on reading (an empty one has none)."""
    file.create_dataset(name, data=data, fletcher32=True if data.size else None)


def joined(parts: Iterable[list[np.ndarray]]) -> list[np.ndarray]:
    """Put the rows of several ragged groups behind each other."""
    return [row for part in parts for row in part]
