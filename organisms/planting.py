"""Planted unit vectors and their coordinates in the residual stream.

The unit vectors are *write* directions. Coordinates are read through the dual basis, so that setting one coordinate
does not change the others when vectors are oblique (Geiger et al., arXiv 2112.00826, for the interchange).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from organisms.mechanism import Mechanism
from organisms.spec import OrganismSpec


def planted_vectors(spec: OrganismSpec) -> Float[Tensor, "k d_model"]:
    """Return the unit vectors of an organism; see `draw_vectors`."""
    return draw_vectors(spec.planted, spec.seed, spec.model.d_model)


def draw_vectors(planted: Mechanism, seed: int, d_model: int) -> Float[Tensor, "k d_model"]:
    """Draw the unit vectors from the seed, with exactly the cosines of the specification.

    Raises:
        ValueError: no set of unit vectors has these cosines.
    """
    names = [variable.name for variable in planted.variables]
    if not names:
        return torch.zeros((0, d_model))
    gram = np.eye(len(names))
    for cosine in planted.cosines:
        i, j = (names.index(name) for name in cosine.between)
        gram[i, j] = gram[j, i] = cosine.value
    try:
        mixing = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        raise ValueError(f"no unit vectors have the cosines {gram.tolist()}; change planted.cosines") from None
    rng = np.random.default_rng([seed, 4])
    basis, _ = np.linalg.qr(rng.standard_normal((d_model, len(names))))
    return torch.tensor(mixing @ basis.T, dtype=torch.float32)


def coordinates(stream: Float[Tensor, "... d_model"], vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "... k"]:
    """Read the planted coordinates of residual-stream vectors, so that `coordinates(c @ vectors, vectors)` is `c`."""
    dual = torch.linalg.solve(vectors @ vectors.T, vectors)
    return stream @ dual.to(stream.dtype).T


def off_axis(stream: Float[Tensor, "... d_model"], vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "... d_model"]:
    """Return the streams with the planted coordinates set to zero."""
    return stream - coordinates(stream, vectors) @ vectors


def set_coordinates(
    stream: Float[Tensor, "... d_model"],
    target: Float[Tensor, "... k"],
    where: Bool[Tensor, "... k"],
    vectors: Float[Tensor, "k d_model"],
) -> Float[Tensor, "... d_model"]:
    """Set the coordinates in `where` to `target`; the rest of the stream is unchanged."""
    change = torch.where(where, target - coordinates(stream, vectors), torch.zeros_like(target))
    return stream + change @ vectors
