"""The category of each prompt, and the threshold that each dial has for it, as tensors on a device.

The semantics are those of `steering.gates.resolved`: a threshold that a request gives comes before its category's, and
that before the dial's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from steering.dial import CategoryRead, Dial


class Categories:
    """What a category read recognises, and the thresholds of some dials.

    Args:
        read: the category read of the dials.
        dials: in the order of the bank's rows.
    """

    def __init__(self, read: CategoryRead, dials: Sequence[Dial], device: torch.device) -> None:
        self.read = read
        by_category = [{} if dial.by_category is None else dial.by_category.thresholds for dial in dials]
        # NaN: the dial has none; the last column is that of prompts that are not recognised
        table = [
            [taus.get(name, torch.nan) if name else torch.nan for name in (*read.names, "")] for taus in by_category
        ]
        self._thresholds = torch.tensor(table, dtype=torch.float64, device=device)

    def recognised(self, score: Float[Tensor, "names n"]) -> Int[Tensor, " n"]:
        """Return the place of each prompt's category among the names; their number where none is confident."""
        most, best = score.double().softmax(dim=0).max(dim=0)
        return torch.where(most >= self.read.confident, best, len(self.read.names))  # NaN: not read yet

    def name(self, score: Float[Tensor, " names"]) -> str | None:
        """Return the category of one prompt; None where none is recognised."""
        return (*self.read.names, "")[int(self.recognised(score[:, None]))] or None

    def thresholds(
        self, score: Float[Tensor, "names n"], given: Float[Tensor, "dials n"], left: Bool[Tensor, "dials n"]
    ) -> Float[Tensor, "dials n"]:
        """Return the threshold of each prompt: where it is left to the dial, its category's if it has one."""
        found = self._thresholds[:, self.recognised(score)]
        return torch.where(left & ~found.isnan(), found, given.double())
