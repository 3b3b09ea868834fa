"""Gathers the tokens of each position from a padded residual stream, with one indexing operation per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.padded_batch import Batch


@dataclass(frozen=True)
class Gather:
    """Token indices of each position in a batch, prepared once for all layers."""

    single: Int[Tensor, "rows positions"]
    present: Bool[Tensor, "rows positions"]
    several: dict[int, tuple[Int[Tensor, "rows tokens"], Bool[Tensor, "rows tokens"]]]  # positions that are a mean

    def pick(self, stream: Float[Tensor, "rows time d_model"]) -> Float[Tensor, "positions rows d_model"]:
        """Return the positions in float32: a mean over tokens without padding, or one token; absent ones are zero."""
        device = stream.device  # in a model spread over several devices it differs between layers
        rows = torch.arange(len(stream), device=device)[:, None]
        found = stream[rows, self.single.to(device)].float()
        picked = torch.where(self.present.to(device)[:, :, None], found, 0.0)
        for position, (index, member) in self.several.items():
            index, member = index.to(device), member.to(device)
            summed = torch.where(member[:, :, None], stream[rows, index].float(), 0.0).sum(dim=1)
            picked[:, position] = summed / member.sum(dim=1, keepdim=True).clamp(min=1)
        return rearrange(picked, "row position d -> position row d")


def gather(rows: Sequence[Rendered], positions: Sequence[str], batch: Batch, skipped: int = 0) -> Gather:
    """Prepare a gather; the first `skipped` tokens of every row (a shared prefix) are not in the batch."""
    where = [[_tokens(row, name) for name in positions] for row in rows]
    first = [pad - skipped for pad in batch.n_pad.tolist()]
    device = batch.tokens.device
    single = [[cell[0] + start if cell else 0 for cell in cells] for cells, start in zip(where, first, strict=True)]
    several = {}
    for position in range(len(positions)):
        cells = [cells[position] for cells in where]
        if max(map(len, cells), default=0) > 1:
            longest = max(map(len, cells))
            index = [
                [*(t + start for t in cell), *[0] * (longest - len(cell))]
                for cell, start in zip(cells, first, strict=True)
            ]
            member = [[True] * len(cell) + [False] * (longest - len(cell)) for cell in cells]
            several[position] = (torch.tensor(index, device=device), torch.tensor(member, device=device))
    present = torch.tensor([[bool(cell) for cell in cells] for cells in where])
    return Gather(torch.tensor(single, device=device), present.to(device), several)


def _tokens(row: Rendered, name: str) -> Sequence[int]:
    return row.roles.get(name, ())
