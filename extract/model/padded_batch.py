"""Padded batches: left-padded for generation, right-padded for capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Batch:
    """Padded prompts.

    Left padding needs the mask and explicit positions; right padding needs neither where only the past is read, since
    no real token ever sees what follows it.
    """

    tokens: Int[Tensor, "batch time"]
    attention_mask: Int[Tensor, "batch seen"]  # of these tokens, after those in a cache where it goes on from one
    prompt_length: int  # tokens up to and with the last prompt token, padding included
    side: Side = "left"

    @property
    def position_ids(self) -> Int[Tensor, "batch seen"]:
        return (self.attention_mask.cumsum(dim=1) - 1).clamp(min=0)

    @property
    def n_pad(self) -> Int[Tensor, " batch"]:
        """Padding before the first token of each row."""
        return self.attention_mask.argmax(dim=1)


def pad(rows: Sequence[Sequence[int]], pad_id: int, side: Side, device: torch.device) -> Batch:
    """Pad rows of token ids to the longest; it is filled on the host and moved to the device at once."""
    longest = max(len(row) for row in rows)
    tokens = torch.full((len(rows), longest), pad_id)
    mask = torch.zeros_like(tokens)
    for i, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(0, len(row))
        tokens[i, place] = torch.tensor(list(row))
        mask[i, place] = 1
    return Batch(tokens.to(device), mask.to(device), longest, side)
