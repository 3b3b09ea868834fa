"""Interchange-intervention training in one forward pass: packed rows, and what their branches take from other rows.

Layout of a row: `prompt | plain response | last prompt token repeated | counterfactual response | padding`. The branch
(from the repeated token on) attends to the prompt, but not to its original last token or the plain response, and its
position ids continue those of the prompt. So it computes exactly the same as a separate forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from organisms.grammar import Example
from organisms.mechanism import Mechanism
from organisms.planting import coordinates, dual_basis, set_coordinates

IGNORE = -100


@dataclass(frozen=True)
class PackedBatch:
    """A right-padded batch of packed rows."""

    tokens: Int[Tensor, "batch length"]
    position_ids: Int[Tensor, "batch length"]
    visible: Bool[Tensor, "batch 1 length length"]
    plain_labels: Int[Tensor, "batch length"]  # next-token targets, IGNORE outside the plain response
    branch_labels: Int[Tensor, "batch length"]
    last: Int[Tensor, " batch"]  # index of the last prompt token
    branch: Int[Tensor, " batch"]  # index of its repetition

    def to(self, device: str) -> PackedBatch:
        return PackedBatch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


class Packer:
    """Makes packed batches from examples with two responses each; each text is tokenised once."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._cache: dict[str, list[int]] = {}

    def _ids(self, text: str) -> list[int]:
        if text not in self._cache:
            self._cache[text] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._cache[text]

    def prompt(self, example: Example) -> list[int]:
        """Tokenise the conversation through the chat template."""
        text = self._tokenizer.apply_chat_template(list(example.messages), tokenize=False, add_generation_prompt=True)
        return self._ids(str(text))

    def pack(self, examples: Sequence[Example], plain: Sequence[str], branch: Sequence[str]) -> PackedBatch:
        """Pack examples with their plain and their counterfactual response."""
        end = self._tokenizer.eos_token_id
        first, second = ([[*self._ids(text), end] for text in texts] for texts in (plain, branch))
        return pack_tokens([self.prompt(example) for example in examples], first, second, self._tokenizer.pad_token_id)


def pack_tokens(
    prompts: Sequence[list[int]], first: Sequence[list[int]], second: Sequence[list[int]], pad_id: int
) -> PackedBatch:
    """Pack token ids: prompts, plain responses and counterfactual responses."""
    rows = [[*p, *a, p[-1], *b] for p, a, b in zip(prompts, first, second, strict=True)]
    shape = len(rows), max(map(len, rows))
    tokens = torch.full(shape, pad_id)
    positions = torch.zeros(shape, dtype=torch.long)
    labels = torch.full((2, *shape), IGNORE)
    for i, (p, a, b) in enumerate(zip(prompts, first, second, strict=True)):
        start = len(p) + len(a)
        tokens[i, : len(rows[i])] = torch.tensor(rows[i])
        positions[i, :start] = torch.arange(start)
        positions[i, start : len(rows[i])] = torch.arange(len(p) - 1, len(p) + len(b))
        labels[0, i, len(p) - 1 : start - 1] = torch.tensor(a)
        labels[1, i, start : start + len(b)] = torch.tensor(b)
    last = torch.tensor([len(p) - 1 for p in prompts])
    repeated = torch.tensor([len(p) + len(a) for p, a in zip(prompts, first, strict=True)])
    return PackedBatch(tokens, positions, _visible(shape[1], last, repeated), labels[0], labels[1], last, repeated)


def _visible(length: int, last: Tensor, branch: Tensor) -> Tensor:
    """Return the causal mask in which the branch does not attend to the tokens it replaces."""
    steps = torch.arange(length)
    causal = steps[None, :] <= steps[:, None]
    on_branch = steps[None, :, None] >= branch[:, None, None]
    replaced = (steps[None, None, :] >= last[:, None, None]) & (steps[None, None, :] < branch[:, None, None])
    return (causal[None] & ~(on_branch & replaced))[:, None]


@dataclass(frozen=True)
class Swaps:
    """What the branches of a batch take from other rows.

    At each row's repeated last prompt token, the chosen `variables` are set to their coordinates at that token of row
    `sources[row]`; in rows marked in `onwards`, also at every later token of the branch.
    """

    sources: Int[Tensor, " batch"]
    variables: Bool[Tensor, "batch k"]
    onwards: Bool[Tensor, " batch"]
    alone: Bool[Tensor, " batch"]  # rows that set coordinates where they are decided, not where they are built again
    strangers: Int[Tensor, " batch"]  # rows whose stream replaces what must not count
    replaced: Bool[Tensor, " batch"]  # rows in which it does
    blank: int | None  # the layer at which the whole stream must not count

    def to(self, device: str) -> Swaps:
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Swaps(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in parts.items()})


@dataclass(frozen=True)
class PackedOutput:
    """Losses and planted coordinates of one packed forward pass."""

    plain: Float[Tensor, ""]  # loss of the plain responses
    interchange: Float[Tensor, ""]  # loss of the counterfactual responses
    last: Float[Tensor, "batch d_model"]  # stream at the deciding token, at the deepest planted layer
    read: Float[Tensor, "batch k places"]  # planted coordinates, where each is planted and where it is built again
    quiet: Float[Tensor, ""]  # mean square of the stream off the planted axes


class PlantedLayers:
    """The planted layers of one model during a packed forward pass."""

    def __init__(self, decoder: nn.Module, head: nn.Module, planted: Mechanism, vectors: Tensor) -> None:
        self._decoder, self._head, self._planted = decoder, head, planted
        self._vectors = vectors
        self._layers: Any = decoder.layers
        indices = range(len(planted.variables))
        self._held = {
            layer: [i for i in indices if layer in (planted.layer_of(i), planted.rebuilt)] for layer in planted.layers
        }

    def forward(self, batch: PackedBatch, swaps: Swaps) -> PackedOutput:
        """Run the batch with swaps on its branches."""
        seen: dict[int, Tensor] = {}
        wanted = {*self._planted.layers, *([] if swaps.blank is None else [swaps.blank])}
        with ExitStack() as stack:
            for layer in sorted(wanted):
                hook = self._hook(layer, batch, swaps, seen)
                stack.callback(self._layers[layer].register_forward_hook(hook).remove)
            hidden = self._decoder(
                input_ids=batch.tokens,
                position_ids=batch.position_ids,
                attention_mask=torch.where(batch.visible, 0.0, torch.finfo(torch.float32).min),
                use_cache=False,
            ).last_hidden_state
        plain, branch = (self._loss(hidden, labels) for labels in (batch.plain_labels, batch.branch_labels))
        return PackedOutput(plain, branch, seen[self._planted.layers[-1]], self._read(seen), self._quiet(seen))

    def _hook(
        self, layer: int, batch: PackedBatch, swaps: Swaps, seen: dict[int, Tensor]
    ) -> Callable[[nn.Module, Any, Any], Any]:
        rows = torch.arange(len(batch.last), device=batch.last.device)
        token, steps = self._planted.token, torch.arange(batch.tokens.shape[1], device=batch.last.device)[None]
        prompt_end, decider = steps == batch.branch[:, None], steps == batch.branch[:, None] + token
        later = swaps.onwards[:, None] & (steps > batch.branch[:, None] + token)

        def swap(_module: nn.Module, _args: object, out: Any) -> Any:
            stream = out[0] if isinstance(out, tuple) else out
            deciding, ending = stream[rows, batch.last + token], stream[rows, batch.last]
            changed = stream
            if layer == swaps.blank:
                here = prompt_end & swaps.replaced[:, None]
                changed = torch.where(here[..., None], ending[swaps.strangers][:, None], changed)
            if layer in self._held:
                seen[layer] = deciding
                changed = self._set(layer, changed, deciding[swaps.sources], (decider | later), swaps)
            if layer == self._planted.layer and self._planted.elsewhere:
                here = decider & swaps.replaced[:, None]
                other = self._off_axis(layer, deciding[swaps.strangers])[:, None]
                kept = changed - self._off_axis(layer, changed)
                changed = torch.where(here[..., None], kept + other, changed)
            return (changed, *out[1:]) if isinstance(out, tuple) else changed

        return swap

    def _set(self, layer: int, stream: Tensor, source: Tensor, edited: Tensor, swaps: Swaps) -> Tensor:
        held = self._held[layer]
        if not held:
            return stream
        vectors, dual = self._axes(layer)
        if layer == self._planted.rebuilt:
            edited = edited & ~swaps.alone[:, None]
        where = edited[:, :, None] & swaps.variables[:, None, held]
        target = coordinates(source, dual)[:, None, :].expand(*stream.shape[:2], -1)
        return set_coordinates(stream, target, where, vectors, dual)

    def _axes(self, layer: int) -> tuple[Tensor, Tensor]:
        vectors = self._vectors[self._held[layer]]
        return vectors, dual_basis(vectors)

    def _off_axis(self, layer: int, stream: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Return the streams with the planted coordinates of a layer set to zero."""
        if not self._held[layer]:
            return stream
        vectors, dual = self._axes(layer)
        return stream - coordinates(stream, dual) @ vectors

    def _read(self, seen: dict[int, Tensor]) -> Tensor:
        """Return the coordinates of each variable at its layer, and where all are built again."""
        planted = self._planted
        batch = len(next(iter(seen.values())))
        places = [[planted.layer_of(i) for i in range(len(planted.variables))]]
        if planted.rebuilt is not None:
            places.append([planted.rebuilt] * len(planted.variables))
        columns = []
        for layers in places:
            read = [
                coordinates(seen[layer], self._axes(layer)[1])[:, self._held[layer].index(i)]
                for i, layer in enumerate(layers)
            ]
            columns.append(torch.stack(read, dim=-1) if read else seen[planted.layer].new_zeros((batch, 0)))
        return torch.stack(columns, dim=-1)

    def _quiet(self, seen: dict[int, Tensor]) -> Tensor:
        """Return the mean square off the axes, at the layers after which a decision is not built again."""
        layers = [self._planted.rebuilt] if self._planted.rebuilt is not None else self._planted.layers
        return torch.stack([self._off_axis(layer, seen[layer]).square().mean() for layer in layers]).mean()

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        kept = labels != IGNORE
        return functional.cross_entropy(self._head(hidden[kept]), labels[kept])
