"""The state of a training in a file, from which the same training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from extract.errors import UserError

Optimiser = tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Checkpoint:
    """The trained weights, and the optimiser of the phase that is under way."""

    path: Path
    spec: str  # of the adapter, as JSON
    weights: Sequence[nn.Parameter]

    def load(self) -> tuple[str, int]:
        """Load the weights; return the phase that is under way and the steps of it that are done; "" without a file.

        Raises:
            UserError: it is of another specification.
        """
        if not self.path.is_file():
            return "", 0
        state = torch.load(self.path, weights_only=True)
        if state["spec"] != self.spec:
            raise UserError(f"{self.path} is a checkpoint of another specification; delete it to begin again")
        with torch.no_grad():
            for weight, saved in zip(self.weights, state["weights"], strict=True):
                weight.copy_(saved)
        return state["phase"], int(state["step"])

    def restore(self, optimiser: Optimiser) -> None:
        """Load the state of the optimiser."""
        state = torch.load(self.path, weights_only=True)
        optimiser[0].load_state_dict(state["optimiser"])
        optimiser[1].load_state_dict(state["schedule"])

    def save(self, phase: str, step: int, optimiser: Optimiser) -> None:
        """Save the state after so many steps of a phase."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        torch.save(
            {
                "phase": phase,
                "step": step,
                "spec": self.spec,
                "weights": [weight.detach().cpu() for weight in self.weights],
                "optimiser": optimiser[0].state_dict(),
                "schedule": optimiser[1].state_dict(),
            },
            part,
        )
        part.replace(self.path)
