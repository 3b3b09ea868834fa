"""Writers: what a gate writes, decided by a dial or constant for all prompts. `joint_write` places it in a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from probes.direction import Direction
from steering.actuator import Actuator, Addition, OnsetBias, StreamActuator, actuator_record
from steering.onset import OnsetProcessor


@dataclass(frozen=True)
class Writer:
    """Write of a dial: direction, actuator, number of steps and layers.

    Args:
        direction: the write direction; None for an onset bias, which has none.
        steps: number of steps: the prefill writes at the last prompt token, each later step at the token that it has
            generated; None is every step.
        later: write at the layers of `direction.later_means` too, with the class means of each.

    Raises:
        ValueError: the arguments do not fit together.
    """

    direction: Direction | None
    actuator: Actuator
    steps: int | None = None
    later: bool = False

    def __post_init__(self) -> None:
        if (self.direction is None) != isinstance(self.actuator, OnsetBias):
            raise ValueError("a dial writes along a direction, unless its actuator is an onset bias, which has none")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"a dial writes at {self.steps} steps; expected 1 (the prefill) or more, or None for all")
        if self.later and isinstance(self.actuator, OnsetBias | Addition):
            raise ValueError("a dial that writes at later layers too sets projections: its actuator must be affine or "
                             "clamp (an added vector stays in later layers)")  # fmt: skip

    def at_layers(self) -> list[tuple[Direction, StreamActuator]]:
        """Return what it writes into the stream: its direction, with the class means of each layer that it writes at.

        Edits are made by `joint_write`, because writes of several writers at one place are one write.
        """
        own, actuator = self.direction, self.actuator
        if own is None or isinstance(actuator, OnsetBias) or not actuator.strength:
            return []
        later = own.later_means if self.later else {}
        places = [own, *(replace(own, locus=replace(own.locus, layer=layer), mean_positive=on, mean_negative=off)
                         for layer, (on, off) in sorted(later.items()))]  # fmt: skip
        return [(at, actuator) for at in places]

    def processors(self, prompt_length: int, gate: Callable[[], Int[np.ndarray, " prompts"]]) -> list[OnsetProcessor]:
        """Return the processors of the next-token scores.

        Args:
            gate: returns the gate of each prompt.
        """
        if not isinstance(self.actuator, OnsetBias):
            return []
        return [OnsetProcessor(self.actuator, prompt_length, gate, self.steps)]


@dataclass(frozen=True)
class ConstantGateWriter:
    """A writer with the same gate for every prompt, like a dial that always decides the same."""

    writer: Writer
    gate: int  # 1 declines, -1 permits, 0 leaves the stream unchanged

    def processors(self, prompt_length: int) -> list[OnsetProcessor]:
        """Return the processors of the next-token scores."""
        return self.writer.processors(prompt_length, lambda: np.array([self.gate])) if self.gate else []

    @property
    def biases(self) -> list[str]:
        """Return the cache key of each processor."""
        key = json.dumps([self.gate, self.writer.steps, actuator_record(self.writer.actuator).to_dict(), ""])
        return [key] * len(self.processors(1))
