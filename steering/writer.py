"""What a gate does to a running model, whether a dial decides it or it is held at one state for every prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from extract.model.edit import Edit, Pass, site
from probes.direction import Direction, vector_digest
from steering.actuator import Actuator, Addition, OnsetBias, StreamActuator, act, actuator_record
from steering.onset import OnsetProcessor

Decided = Callable[[int, int, int, int], np.ndarray]  # first and last token, start of the pass, rows


@dataclass(frozen=True)
class Writer:
    """Where and how a dial writes, and for how long.

    Args:
        direction: what it writes along; None for an onset bias, which has none.
        steps: at how many steps: the prefill writes at the last prompt token, each later step at the token it has
            said; None is all of them.
        later: write at the layers of `direction.later_means` too, at each to its own class means.

    Raises:
        ValueError: the parts do not go together.
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
                             "clamp (what is added once stays)")  # fmt: skip

    def edits(self, decided: Decided, key: str = "") -> list[Edit]:
        """Return what it writes into the stream, an edit a layer.

        Args:
            decided: returns the gates of some tokens, (rows, tokens) or (rows, 1).
            key: names what is written, where it is to be told apart.
        """
        if self.direction is None or isinstance(self.actuator, OnsetBias) or not self.actuator.strength:
            return []
        return [self._edit(at, self.actuator, decided, key) for at in self._at_layers(self.direction)]

    def processors(self, prompt_length: int, gate: Callable[[], np.ndarray]) -> list[OnsetProcessor]:
        """Return what it does to the scores of the next token.

        Args:
            gate: returns the gate of each prompt.
        """
        if not isinstance(self.actuator, OnsetBias):
            return []
        return [OnsetProcessor(self.actuator, prompt_length, gate, self.steps)]

    def _at_layers(self, own: Direction) -> list[Direction]:
        """Return the direction with the class means of each layer it is written at."""
        later = own.later_means if self.later else {}
        return [own, *(replace(own, locus=replace(own.locus, layer=layer), mean_positive=on, mean_negative=off)
                       for layer, (on, off) in sorted(later.items()))]  # fmt: skip

    def _edit(self, at: Direction, actuator: StreamActuator, decided: Decided, key: str) -> Edit:
        vector, sent = torch.tensor(at.vector), _Sent()

        def function(stream: Tensor, pass_: Pass) -> Tensor:
            nonlocal vector
            first_written, end = pass_.prompt_length - 1, pass_.start + pass_.length
            first = max(pass_.start, first_written)
            last = end if self.steps is None else min(end, first_written + self.steps)
            if first >= last:
                return stream
            gates = decided(first, last, pass_.start, len(stream))
            if not gates.any():
                return stream
            vector, gate = vector.to(stream.device), sent.to(stream.device, gates)
            before, after = first - pass_.start, last - pass_.start
            part = stream[:, before:after]
            written = torch.where((gate != 0)[..., None], act(actuator, part, vector, at, gate), part)
            return torch.cat([stream[:, :before], written, stream[:, after:]], dim=1)

        means = f"{at.mean_positive!r}, {at.mean_negative!r}"
        return Edit(site(at.locus.site), at.locus.layer, function, key and f"{key} means {means}")


class _Sent:
    """Gates on the stream's device, sent there again only where they are others: sending makes the host wait for it."""

    def __init__(self) -> None:
        self._gates, self._tensor = np.empty(0), torch.empty(0)

    def to(self, device: torch.device, gates: np.ndarray) -> Tensor:
        if self._tensor.device != device or not np.array_equal(self._gates, gates):
            self._gates, self._tensor = gates, torch.tensor(gates, device=device)
        return self._tensor


@dataclass(frozen=True)
class Held:
    """A writer whose gate is the same for every prompt, as a dial's would be that always decided so."""

    writer: Writer
    gate: int  # 1 declines, -1 permits, 0 leaves the stream alone

    def edits(self) -> list[Edit]:
        """Return what it writes into the stream, named, so that what is said under it can be remembered."""
        decided: Decided = lambda first, last, start, rows: np.full((rows, 1), self.gate)  # noqa: E731
        return self.writer.edits(decided, self._key) if self.gate else []

    def processors(self, prompt_length: int) -> list[OnsetProcessor]:
        """Return what it does to the scores of the next token."""
        return self.writer.processors(prompt_length, lambda: np.array([self.gate])) if self.gate else []

    @property
    def biases(self) -> list[str]:
        """Name what its processors do, each of them exactly."""
        return [self._key] * len(self.processors(1))

    @property
    def _key(self) -> str:
        writer = self.writer
        along = "" if writer.direction is None else vector_digest(writer.direction.vector)
        return json.dumps([self.gate, writer.steps, actuator_record(writer.actuator), along])
