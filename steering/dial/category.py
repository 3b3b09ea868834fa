"""Recognises the category of a prompt from its stream, and thresholds for the categories that have their own.

A prompt that is not recognised confidently has no category, and the dial's one threshold for all decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from probes.direction import Locus


@dataclass(frozen=True)
class CategoryRead:
    """A multinomial logistic probe of the category at one locus.

    Args:
        names: the categories; "" stands for every other one.
        confident: least probability from which a category counts as recognised.

    Raises:
        ValueError: the shapes do not fit, or two categories have the same name.
    """

    names: tuple[str, ...]
    locus: Locus
    weight: Float[np.ndarray, "names d_model"]
    bias: Float[np.ndarray, " names"]
    confident: float

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"categories must have different names: {', '.join(self.names)}")
        if len(self.weight) != len(self.names) or self.bias.shape != (len(self.names),):
            raise ValueError(
                f"{len(self.names)} categories, but weights of shape {self.weight.shape} and biases of "
                f"shape {self.bias.shape}"
            )

    def recognised(self, streams: Float[np.ndarray, "n d_model"]) -> list[str | None]:
        """Return the category of each stream at the locus; None where none is recognised confidently."""
        logits = streams.astype(np.float64) @ self.weight.T.astype(np.float64) + self.bias
        return named(self.names, softmax(logits, axis=1), self.confident)


def named(names: tuple[str, ...], probability: Float[np.ndarray, "n names"], confident: float) -> list[str | None]:
    """Return the most probable category of each row; None where it is not confident, or is no category."""
    best = probability.argmax(axis=1)
    sure = probability[np.arange(len(best)), best] >= confident
    return [names[i] or None if ok else None for i, ok in zip(best.tolist(), sure.tolist(), strict=True)]


@dataclass(frozen=True)
class CategoryThresholds:
    """The thresholds of one dial for prompts of some recognised categories; others have the dial's own.

    Raises:
        ValueError: a threshold is given for a category that is not recognised, or is no number.
    """

    read: CategoryRead
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.thresholds) - set(self.read.names)):
            raise ValueError(f"a threshold is given for {unknown[0]!r}, which the category read does not recognise")
        if off := [name for name, tau in self.thresholds.items() if math.isnan(tau)]:
            raise ValueError(f"the threshold of {off[0]!r} is no number; a dial cannot be off for a category")
