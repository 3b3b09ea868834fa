"""Activations indexed by layer and position, read one locus ahead of the work on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Shaped

LocusActivations = Shaped[np.ndarray, "..."] | Shaped[torch.Tensor, "..."]  # activations of one locus


@runtime_checkable
class Activations(Protocol):
    """Anything indexed by layer and position: a NumPy or HDF5 array (layers, positions, samples, features)."""

    def __getitem__(self, key: tuple[int, int], /) -> Any: ...


def read_ahead(
    activations: Activations, keys: Sequence[tuple[int, int]]
) -> Generator[Shaped[np.ndarray, "samples features"]]:
    """Yield the loci of `keys` in order, each read by a background thread during the work on the one before.

    At most two loci are in memory: the one yielded last and the next. An error of reading is raised in its turn.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="refusal-read-ahead") as reader:
        waiting = deque(reader.submit(_read, activations, key) for key in keys[:1])
        for k in range(len(keys)):
            X = waiting.popleft().result()
            waiting.extend(reader.submit(_read, activations, key) for key in keys[k + 1 : k + 2])
            yield X
            del X  # or a third locus would be in memory


def _read(activations: Activations, key: tuple[int, int]) -> np.ndarray:
    return as_array(activations[key])


def as_array(X: LocusActivations) -> np.ndarray:
    """Return the activations of one locus as a NumPy array; bfloat16 becomes float32, which NumPy has."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = X.float() if X.dtype == torch.bfloat16 else X
    return np.asarray(X)


def check_shapes(
    activations: Activations, layers: Sequence[int], positions: Sequence[str], present: np.ndarray | None
) -> None:
    """Refuse layer and position names that do not match the axes: loci would get wrong names."""
    shape = tuple(getattr(activations, "shape", ()))  # an object with [layer, position] need not have a shape
    if shape and (len(shape) != 4 or shape[:2] != (len(layers), len(positions))):
        raise ValueError(
            f"{len(layers)} layers and {len(positions)} positions were named; activations must be "
            f"(n_layers, n_positions, n_samples, d_model), got shape {shape}"
        )
    if present is not None and (np.ndim(present) != 2 or len(present) != len(positions)):
        raise ValueError(f"present must be ({len(positions)} positions, n_samples); got shape {np.shape(present)}")
