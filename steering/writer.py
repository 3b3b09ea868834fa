"""Writers: how a gate changes a running model, with a gate decided by a dial or constant for all prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from extract.model.edit import Edit, Pass, site
from probes.direction import Direction, vector_digest
from steering.actuator import Actuator, Addition, OnsetBias, StreamActuator, actuator_record, apply_actuator
from steering.device_copies import DeviceCopies, LastCopy
from steering.interventions import write_at
from steering.onset import OnsetProcessor

# first token, end, start of the pass (absolute positions), number of rows -> gates
GateLookup = Callable[[int, int, int, int], Int[np.ndarray, "rows tokens"]]


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

    def edits(self, gates_at: GateLookup, key: str = "") -> list[Edit]:
        """Return the edits of the residual stream, one a layer.

        Args:
            gates_at: returns the gates of some tokens, or one a row.
            key: identifies the edit exactly, so that responses under it can be cached.
        """
        if self.direction is None or isinstance(self.actuator, OnsetBias) or not self.actuator.strength:
            return []
        return [self._edit(at, self.actuator, gates_at, key) for at in self._at_layers(self.direction)]

    def processors(self, prompt_length: int, gate: Callable[[], Int[np.ndarray, " prompts"]]) -> list[OnsetProcessor]:
        """Return the processors of the next-token scores.

        Args:
            gate: returns the gate of each prompt.
        """
        if not isinstance(self.actuator, OnsetBias):
            return []
        return [OnsetProcessor(self.actuator, prompt_length, gate, self.steps)]

    def _at_layers(self, own: Direction) -> list[Direction]:
        """Return the direction with the class means of each layer to write at."""
        later = own.later_means if self.later else {}
        return [own, *(replace(own, locus=replace(own.locus, layer=layer), mean_positive=on, mean_negative=off)
                       for layer, (on, off) in sorted(later.items()))]  # fmt: skip

    def _edit(self, at: Direction, actuator: StreamActuator, gates_at: GateLookup, key: str) -> Edit:
        r, sent = DeviceCopies(at.vector), LastCopy()

        def write(part: Float[Tensor, "rows tokens d_model"], pass_: Pass) -> Float[Tensor, "rows tokens d_model"]:
            first = max(pass_.start, pass_.prompt_length - 1)
            gates = gates_at(first, first + part.shape[1], pass_.start, len(part))
            if not gates.any():
                return part
            gate = sent.of(gates, part.device)
            return torch.where(
                (gate != 0)[..., None], apply_actuator(actuator, part, r.on(part.device), at, gate), part
            )

        means = f"{at.mean_positive!r}, {at.mean_negative!r}"
        return write_at(site(at.locus.site), at.locus.layer, self._tokens, write, key and f"{key} means {means}")

    def _tokens(self, pass_: Pass) -> slice:
        """Return the tokens of a pass that are written: the last prompt token, and later ones."""
        first = pass_.prompt_length - 1
        return pass_.within(first, None if self.steps is None else first + self.steps)


@dataclass(frozen=True)
class ConstantGateWriter:
    """A writer with the same gate for every prompt, like a dial that always decides the same."""

    writer: Writer
    gate: int  # 1 declines, -1 permits, 0 leaves the stream unchanged

    def edits(self) -> list[Edit]:
        """Return the edits of the residual stream, with keys, so that responses under them can be cached."""
        gates_at: GateLookup = lambda first, last, start, rows: np.full((rows, 1), self.gate)  # noqa: E731
        return self.writer.edits(gates_at, self._key) if self.gate else []

    def processors(self, prompt_length: int) -> list[OnsetProcessor]:
        """Return the processors of the next-token scores."""
        return self.writer.processors(prompt_length, lambda: np.array([self.gate])) if self.gate else []

    @property
    def biases(self) -> list[str]:
        """Return the cache key of each processor."""
        return [self._key] * len(self.processors(1))

    @property
    def _key(self) -> str:
        writer = self.writer
        along = "" if writer.direction is None else vector_digest(writer.direction.vector)
        return json.dumps([self.gate, writer.steps, actuator_record(writer.actuator).to_dict(), along])
