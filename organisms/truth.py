"""Ground truth of an organism, known by construction. It is read only for grading, after a verdict is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float

from extract.model.edit import Site
from organisms.grammar import Grammar
from organisms.planting import planted_vectors
from organisms.spec import Decline


@dataclass(frozen=True)
class PlantedVariable:
    """One planted variable: its unit vector, and its mean coordinate when off and when on."""

    name: str
    decides: tuple[Decline, ...]
    direction: tuple[float, ...]
    mean_off: float
    mean_on: float


@dataclass(frozen=True)
class Truth:
    """The planted locus and variables, the over-refused trigger words, and the measured rates."""

    name: str
    site: Site
    layer: int
    position: str
    variables: tuple[PlantedVariable, ...]
    over_refused_triggers: tuple[str, ...]
    rates: dict[str, float]

    @property
    def text(self) -> str:
        """The text of `truth.json`."""
        return json.dumps(asdict(self), indent=1) + "\n"


def truth_of(grammar: Grammar, measured: dict[str, float], means: Float[np.ndarray, "k 2"]) -> Truth:
    """Return the ground truth of an organism.

    Args:
        measured: the measured targets.
        means: the mean coordinate of each variable when off and when on.
    """
    spec = grammar.spec
    vectors = planted_vectors(spec)
    return Truth(
        name=spec.name,
        site="resid_post",
        layer=spec.planted.layer,
        position="post_last",
        variables=tuple(
            PlantedVariable(
                variable.name, variable.decides, tuple(round(float(x), 7) for x in vector), float(off), float(on)
            )
            for variable, vector, (off, on) in zip(spec.planted.variables, vectors, means, strict=True)
        ),
        over_refused_triggers=tuple(sorted(grammar.over_refused)),
        rates=measured,
    )
