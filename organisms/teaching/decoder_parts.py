"""A decoder in parts: layers that are left alone, those that write the decision, and those above the planted layer.

Each part can be run and trained without the others: it reads a stream that was kept, edited or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from organisms.teaching.branches import Branches

Part = Literal["before", "below", "above"]


class DecoderParts:
    """The parts of a decoder whose layers are in `layers`, with a final `norm` (Llama and its relatives).

    Args:
        first: the first layer that writes the decision; those before it are left alone.
        layer: the planted layer.
    """

    def __init__(self, decoder: nn.Module, first: int, layer: int) -> None:
        self._decoder: Any = decoder
        layers = list(self._decoder.layers)
        self._parts: dict[Part, list[nn.Module]] = {
            "before": layers[:first],
            "below": layers[first : layer + 1],
            "above": layers[layer + 1 :],
        }

    def weights(self, part: Part) -> list[nn.Parameter]:
        """Return the trained weights of a part."""
        return [w for layer in self._parts[part] for w in layer.parameters() if w.requires_grad]

    def before(self, rows: Branches) -> Float[Tensor, "batch length d_model"]:
        """Return the stream that the first layer to write reads."""
        with self._only("before"):
            return self._run(rows, input_ids=rows.tokens)

    def below(
        self, rows: Branches, stream: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Return `resid_post` of the planted layer for a stream of `before`."""
        with self._only("below"):
            return self._run(rows, inputs_embeds=stream)

    def above(
        self, rows: Branches, stream: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Return the normed output of the last layer for a stream at the planted layer."""
        with self._only("above"):
            return self._run(rows, inputs_embeds=stream)

    def _run(self, rows: Branches, **given: Tensor) -> Tensor:
        mask = torch.where(rows.visible, 0.0, torch.finfo(torch.float32).min)
        return self._decoder(
            **given, position_ids=rows.position_ids, attention_mask=mask, use_cache=False
        ).last_hidden_state

    @contextmanager
    def _only(self, part: Part) -> Iterator[None]:
        layers, norm = self._decoder.layers, self._decoder.norm
        self._decoder.layers = nn.ModuleList(self._parts[part])
        if part != "above":
            self._decoder.norm = nn.Identity()
        try:
            yield
        finally:
            self._decoder.layers, self._decoder.norm = layers, norm
