"""Padded batches: left-padded for generation, right-padded for capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from extract.errors import UserError

Side = Literal["left", "right"]


@dataclass(frozen=True, repr=False)
class Batch:
    """Padded prompts; only left padding needs mask and positions, as no real token attends to later ones."""

    tokens: Int[Tensor, "batch time"]
    attention_mask: Int[Tensor, "batch seen"]  # of the cached tokens, if any, and then of these tokens
    prompt_length: int  # tokens up to and including the last prompt token, with padding
    side: Side = "left"

    def __repr__(self) -> str:
        n, length = self.tokens.shape
        return f"Batch({n} prompts of {length} tokens, padded on the {self.side})"

    @property
    def position_ids(self) -> Int[Tensor, "batch seen"]:
        return (self.attention_mask.cumsum(dim=1) - 1).clamp(min=0)

    @property
    def n_pad(self) -> Int[Tensor, " batch"]:
        """Number of padding tokens before the first token of each row."""
        return self.attention_mask.argmax(dim=1)


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, side: Side, device: torch.device, context: int | None = None
) -> Batch:
    """Pad rows of token ids to the longest, on the host; UserError if it is longer than the model's context."""
    longest = max(len(row) for row in rows)
    if context and longest > context:
        raise UserError(
            f"a prompt has {longest:,} tokens, but the model's context has {context:,}; "
            "shorten the prompt or leave it out"
        )
    tokens = torch.full((len(rows), longest), pad_id)
    mask = torch.zeros_like(tokens)
    for i, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(0, len(row))
        tokens[i, place] = torch.tensor(list(row))
        mask[i, place] = 1
    return Batch(tokens.to(device), mask.to(device), longest, side)
