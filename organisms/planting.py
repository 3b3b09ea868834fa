"""Planted unit vectors, their coordinates in the residual stream, and the ground truth that is written of them.

The unit vectors are *write* directions. Coordinates are read through the dual basis, so that setting one coordinate
does not change the others when vectors are oblique (Geiger et al., arXiv 2112.00826, for the interchange). The truth is
read only for grading, after a verdict is written.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from extract.model.edit import Site
from organisms.grammar import Grammar
from organisms.mechanism import Decline, Mechanism
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


def dual_basis(vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "k d_model"]:
    """Return the dual basis, whose rows read one coordinate each: `dual @ vectors.T` is the identity."""
    return torch.linalg.solve(vectors @ vectors.T, vectors)


def coordinates(stream: Float[Tensor, "... d_model"], dual: Float[Tensor, "k d_model"]) -> Float[Tensor, "... k"]:
    """Read the planted coordinates of residual-stream vectors."""
    return stream @ dual.T


def set_coordinates(
    stream: Float[Tensor, "... d_model"],
    target: Float[Tensor, "... k"],
    where: Bool[Tensor, "... k"],
    vectors: Float[Tensor, "k d_model"],
    dual: Float[Tensor, "k d_model"],
) -> Float[Tensor, "... d_model"]:
    """Set the coordinates in `where` to `target`; the rest of the stream is unchanged."""
    change = torch.where(where, target - coordinates(stream, dual), torch.zeros_like(target))
    return stream + change @ vectors


@dataclass(frozen=True)
class PlantedVariable:
    """One planted variable: its unit vector, and its mean coordinate when off and when on."""

    name: str
    decides: tuple[Decline, ...]
    direction: tuple[float, ...]
    mean_off: float
    mean_on: float
    layer: int


@dataclass(frozen=True)
class Truth:
    """The planted locus and variables, the over-refused trigger words, and the measured rates.

    `combine` tells how variables that decide the same make one decision; the specification has the rest.
    """

    name: str
    site: Site
    layer: int
    position: str
    combine: str
    variables: tuple[PlantedVariable, ...]
    over_refused_triggers: tuple[str, ...]
    rates: dict[str, float]

    @property
    def text(self) -> str:
        """The text of `truth.json`."""
        return json.dumps(asdict(self), indent=1) + "\n"


def truth_of(grammar: Grammar, measured: dict[str, float], means: Float[np.ndarray, "k 2"]) -> Truth:
    """Return the ground truth of an organism; see `planted_truth`."""
    spec = grammar.spec
    return planted_truth(spec.name, spec.planted, planted_vectors(spec), measured, means, grammar.over_refused)


def planted_truth(
    name: str,
    planted: Mechanism,
    vectors: Float[Tensor, "k d_model"],
    measured: dict[str, float],
    means: Float[np.ndarray, "k 2"],
    over_refused: Collection[str] = (),
) -> Truth:
    """Return the ground truth of a planted mechanism.

    Args:
        measured: the measured targets.
        means: the mean coordinate of each variable when off and when on.
        over_refused: the trigger words that are refused when benign.
    """
    return Truth(
        name=name,
        site="resid_post",
        layer=planted.layer,
        position="post_last" if not planted.token else "first_generated",
        combine=planted.combine,
        variables=tuple(
            PlantedVariable(
                name=variable.name,
                decides=variable.decides,
                direction=tuple(round(float(x), 7) for x in vectors[index]),
                mean_off=float(means[index, 0]),
                mean_on=float(means[index, 1]),
                layer=planted.layer_of(index),
            )
            for index, variable in enumerate(planted.variables)
        ),
        over_refused_triggers=tuple(sorted(over_refused)),
        rates=measured,
    )
