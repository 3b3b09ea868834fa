"""Parts of a forward pass that are trained apart: branches of one prompt in one row, and groups of layers.

Layout of a row: `prompt without its last token | last token, response | …`. Each branch attends to the prompt and to
itself, and its position ids continue those of the prompt. So it computes the same as a row of its own, and the prompt
is computed once. Each group of layers can be run and trained without the others: it reads a stream that was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from organisms.interchange import IGNORE
from organisms.planting import coordinates, dual_basis, set_coordinates

PADDING, PROMPT = -2, -1  # in place of a branch's index


@dataclass(frozen=True)
class Branches:
    """A right-padded batch of prompts with their branches."""

    tokens: Int[Tensor, "batch length"]
    position_ids: Int[Tensor, "batch length"]
    visible: Bool[Tensor, "batch 1 length length"]
    labels: Int[Tensor, "batch length"]  # next-token targets, IGNORE outside the responses
    branch: Int[Tensor, "batch length"]  # the branch of each token, PROMPT or PADDING
    deciding: Bool[Tensor, "batch length n"]  # the last prompt token of each branch

    def to(self, device: torch.device) -> Branches:
        """Move to a device."""
        return Branches(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def pack_branches(prompts: Sequence[list[int]], responses: Sequence[Sequence[list[int]]], pad_id: int) -> Branches:
    """Pack each prompt with its responses, as many for every prompt."""
    lengths = [len(p) - 1 + sum(1 + len(r) for r in said) for p, said in zip(prompts, responses, strict=True)]
    shape = len(prompts), max(lengths)
    tokens, positions = torch.full(shape, pad_id), torch.zeros(shape, dtype=torch.long)
    labels, branch = torch.full(shape, IGNORE), torch.full(shape, PADDING)
    deciding = torch.zeros((*shape, len(responses[0])), dtype=torch.bool)
    for i, (prompt, said) in enumerate(zip(prompts, responses, strict=True)):
        at = len(prompt) - 1
        tokens[i, :at], positions[i, :at], branch[i, :at] = torch.tensor(prompt[:-1]), torch.arange(at), PROMPT
        for k, response in enumerate(said):
            end = at + 1 + len(response)
            tokens[i, at:end] = torch.tensor([prompt[-1], *response])
            positions[i, at:end] = torch.arange(len(prompt) - 1, len(prompt) + len(response))
            labels[i, at : end - 1] = torch.tensor(response)
            branch[i, at:end], deciding[i, at, k] = k, True
            at = end
    return Branches(tokens, positions, _visible(branch), labels, branch, deciding)


def _visible(branch: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch 1 length length"]:
    """Return the causal mask in which a token sees the prompt and its own branch."""
    steps = torch.arange(branch.shape[1])
    mine = (branch[:, :, None] == branch[:, None, :]) | (branch[:, None, :] == PROMPT)
    return ((steps[None, :] <= steps[:, None])[None] & mine)[:, None]


def set_in_branches(
    stream: Float[Tensor, "batch length d_model"],
    rows: Branches,
    targets: Float[Tensor, "batch n k"],
    onwards: Bool[Tensor, "batch n k"],
    vectors: Float[Tensor, "k d_model"],
) -> Float[Tensor, "batch length d_model"]:
    """Set the planted coordinates of each branch at its last prompt token, those of `onwards` at later tokens too.

    Args:
        targets: the coordinates to set, NaN where one is left as it is.
    """
    own = torch.nn.functional.one_hot(rows.branch.clamp(min=0), targets.shape[1]).bool() & (rows.branch >= 0)[..., None]
    edited = rows.deciding[..., None] | (own[..., None] & onwards[:, None])
    goal = (own[..., None] * targets.nan_to_num()[:, None]).sum(dim=2)
    where = (edited & ~targets.isnan()[:, None]).any(dim=2)
    return set_coordinates(stream, goal, where, vectors, dual_basis(vectors))


def deciding_coordinates(
    stream: Float[Tensor, "batch length d_model"], rows: Branches, vectors: Float[Tensor, "k d_model"]
) -> Float[Tensor, "batch k"]:
    """Return the planted coordinates at the last prompt token of each row's first branch."""
    return coordinates(stream[rows.deciding[..., 0]], dual_basis(vectors))


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
