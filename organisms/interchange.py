"""Planted vectors, and interchange interventions in one forward pass (Geiger et al., arXiv 2112.00826).

The unit vectors are *write* directions. Coordinates are read through the dual basis, so that setting one does not
change the others when vectors are oblique.

Layout of a row: `prompt without its last token | last token, response | last token, response | …`. Each branch attends
to the prompt and to itself, and its position ids continue those of the prompt. So it computes exactly the same as a
separate forward pass, and the prompt is computed once. Where layers do more than attend, branches stand apart: each has
the prompt before it, and is run as a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from organisms.mechanism import Mechanism

IGNORE = -100
PADDING, PROMPT = -2, -1  # in place of a branch's index


def draw_vectors(planted: Mechanism, seed: int, d_model: int) -> Float[Tensor, "k d_model"]:
    """Draw the unit vectors from the seed, with exactly the cosines asked for; ValueError if there are none."""
    names = [variable.name for variable in planted.variables]
    if not names:
        return torch.zeros((0, d_model))
    gram = np.eye(len(names))
    for cosine in planted.cosines:
        i, j = (names.index(name) for name in cosine.between)
        gram[i, j] = gram[j, i] = cosine.value
    try:
        mixing = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        raise ValueError(f"no unit vectors have the cosines {gram.tolist()}; change planted.cosines") from None
    rng = np.random.default_rng([seed, 4])
    basis, _ = np.linalg.qr(rng.standard_normal((d_model, len(names))))
    return torch.tensor(mixing @ basis.T, dtype=torch.float32)


def coordinates(stream: Float[Tensor, "... d_model"], vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "... k"]:
    """Read the planted coordinates of residual-stream vectors, so that `coordinates(c @ vectors, vectors)` is `c`."""
    dual = torch.linalg.solve(vectors @ vectors.T, vectors)
    return stream @ dual.to(stream.dtype).T


def off_axis(stream: Float[Tensor, "... d_model"], vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "... d_model"]:
    """Return the streams with the planted coordinates set to zero."""
    return stream - coordinates(stream, vectors) @ vectors


def set_coordinates(
    stream: Float[Tensor, "... d_model"],
    target: Float[Tensor, "... k"],
    where: Bool[Tensor, "... k"],
    vectors: Float[Tensor, "k d_model"],
) -> Float[Tensor, "... d_model"]:
    """Set the coordinates in `where` to `target`; the rest of the stream is unchanged."""
    change = torch.where(where, target - coordinates(stream, vectors), torch.zeros_like(target))
    return stream + change @ vectors


@dataclass(frozen=True)
class Branches:
    """A right-padded batch of prompts with their branches; an organism has two: plain and counterfactual."""

    tokens: Int[Tensor, "batch length"]
    position_ids: Int[Tensor, "batch length"]
    visible: Bool[Tensor, "batch 1 length length"] | None  # None: each branch is an equal part of the length, apart
    labels: Int[Tensor, "batch length"]  # next-token targets, IGNORE outside the responses
    branch: Int[Tensor, "batch length"]  # the branch of each token, PROMPT or PADDING
    deciding: Bool[Tensor, "batch length n"]  # the last prompt token of each branch

    @property
    def mask(self) -> Float[Tensor, "batch 1 length length"]:
        """What is added to the attention logits."""
        assert self.visible is not None
        return torch.where(self.visible, 0.0, torch.finfo(torch.float32).min)

    def as_run(self, along: Tensor) -> Tensor:
        """Return something of each token, (batch, length, …), as the rows that are run."""
        return along if self.visible is not None else torch.cat(along.chunk(self.deciding.shape[2], dim=1))

    def as_laid(self, ran: Tensor) -> Tensor:
        """Return something of each token of the rows that are run as (batch, length, …)."""
        return ran if self.visible is not None else torch.cat(ran.chunk(self.deciding.shape[2]), dim=1)

    def without(self, given: Bool[Tensor, "batch n"], n_tokens: int) -> Branches:
        """Return the batch in which the first tokens of some branches' responses are no targets."""
        labels, start = self.labels.clone(), self.deciding.int().argmax(dim=1)
        for row, branch in given.nonzero().tolist():
            labels[row, start[row, branch] : start[row, branch] + n_tokens] = IGNORE
        return replace(self, labels=labels)


@dataclass(frozen=True)
class Swaps:
    """What the counterfactual branches of a batch take from other rows, at each branch's last prompt token."""

    sources: Int[Tensor, " batch"]  # rows whose coordinates at that token are taken
    variables: Bool[Tensor, "batch k"]  # those that are set
    onwards: Bool[Tensor, " batch"]  # rows that set them at every later token of the branch too
    alone: Bool[Tensor, " batch"]  # rows that set coordinates where they are decided, not where they are built again
    strangers: Int[Tensor, " batch"]  # rows whose stream replaces what must not count
    replaced: Bool[Tensor, " batch"]  # rows in which it does
    blank: tuple[int, int] | None  # the layer and token, from the prompt's last, whose whole stream must not count


Batch = TypeVar("Batch", Branches, Swaps)


def on_device(batch: Batch, device: str | torch.device) -> Batch:
    """Move all tensors to a device."""
    return replace(batch, **{k: part.to(device) for k, part in vars(batch).items() if isinstance(part, Tensor)})


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
    steps = torch.arange(branch.shape[1])  # causal: a token sees the prompt and its own branch
    mine = (branch[:, :, None] == branch[:, None, :]) | (branch[:, None, :] == PROMPT)
    visible = ((steps[None, :] <= steps[:, None])[None] & mine)[:, None]
    return Branches(tokens, positions, visible, labels, branch, deciding)


def pack_apart(prompts: Sequence[list[int]], responses: Sequence[Sequence[list[int]]], pad_id: int) -> Branches:
    """Pack each prompt with its responses, as many for every prompt, with the prompt before each of them."""
    n = len(responses[0])
    parts = [pack_branches(prompts, [[said[k]] for said in responses], pad_id) for k in range(n)]
    length = max(part.tokens.shape[1] for part in parts)

    def beside(values: Sequence[Tensor], empty: int) -> Tensor:
        return torch.cat([functional.pad(each, (0, length - each.shape[1]), value=empty) for each in values], dim=1)

    deciding = [functional.one_hot(torch.tensor(k), n) * part.deciding for k, part in enumerate(parts)]
    return Branches(
        beside([part.tokens for part in parts], pad_id),
        beside([part.position_ids for part in parts], 0),
        None,
        beside([part.labels for part in parts], IGNORE),
        beside([torch.where(part.branch == 0, k, part.branch) for k, part in enumerate(parts)], PADDING),
        torch.stack([beside([each[..., k] for each in deciding], 0) for k in range(n)], dim=-1).bool(),
    )


class PlantedLayers:
    """The planted layers of one model during a packed forward pass."""

    def __init__(self, decoder: nn.Module, head: nn.Module, planted: Mechanism, vectors: Tensor) -> None:
        self._decoder, self._head, self._planted = decoder, head, planted
        self._layers: Any = decoder.layers
        self._axes = {layer: vectors[planted.held(layer)] for layer in planted.layers}

    def forward(self, rows: Branches, swaps: Swaps) -> tuple[list[Float[Tensor, ""]], dict[int, Tensor]]:
        """Run the batch with swaps; return the losses of the plain and of the counterfactual responses.

        Also the stream of each planted layer at the plain branch's deciding token, (batch, d_model).
        """
        seen: dict[int, Tensor] = {}
        wanted = {*self._planted.layers, *([] if swaps.blank is None else [swaps.blank[0]])}
        with ExitStack() as stack:
            for layer in sorted(wanted):
                hook = self._hook(layer, rows, swaps, seen)
                stack.callback(self._layers[layer].register_forward_hook(hook).remove)
            ids, positions = rows.as_run(rows.tokens), rows.as_run(rows.position_ids)
            mask = None if rows.visible is None else rows.mask  # padding is on the right, where no token sees it
            hidden = rows.as_laid(
                self._decoder(
                    input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
                ).last_hidden_state
            )
        learned = [(rows.labels != IGNORE) & (rows.branch == k) for k in (0, 1)]
        return [functional.cross_entropy(self._head(hidden[one]), rows.labels[one]) for one in learned], seen

    def _hook(
        self, layer: int, rows: Branches, swaps: Swaps, seen: dict[int, Tensor]
    ) -> Callable[[nn.Module, Any, Any], Any]:
        planted, every = self._planted, torch.arange(len(rows.tokens), device=rows.tokens.device)
        steps = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)[None]
        last, start = rows.deciding.int().argmax(dim=1).unbind(dim=1)
        decider = steps == start[:, None] + planted.decider
        onwards = start[:, None] + (0 if planted.thought else planted.decider)
        later = swaps.onwards[:, None] & (steps >= onwards)

        def swap(_module: nn.Module, _args: object, out: Any) -> Any:
            stream = rows.as_laid(out[0] if isinstance(out, tuple) else out)
            deciding, changed = stream[every, last + planted.decider], stream
            if swaps.blank is not None and layer == swaps.blank[0]:
                here = (steps == start[:, None] + swaps.blank[1]) & swaps.replaced[:, None]
                other = stream[every, last + swaps.blank[1]][swaps.strangers]
                changed = torch.where(here[..., None], other[:, None], changed)
            if layer in self._axes:
                seen[layer] = deciding
                changed = self._set(layer, changed, deciding[swaps.sources], decider | later, swaps)
            if layer == planted.layer and planted.elsewhere:
                here, axes = decider & swaps.replaced[:, None], self._axes[layer]
                other = off_axis(deciding[swaps.strangers], axes)[:, None]
                changed = torch.where(here[..., None], changed - off_axis(changed, axes) + other, changed)
            changed = rows.as_run(changed)
            return (changed, *out[1:]) if isinstance(out, tuple) else changed

        return swap

    def _set(self, layer: int, stream: Tensor, source: Tensor, edited: Tensor, swaps: Swaps) -> Tensor:
        if not len(vectors := self._axes[layer]):
            return stream
        if layer == self._planted.rebuilt:
            edited = edited & ~swaps.alone[:, None]
        where = edited[:, :, None] & swaps.variables[:, None, self._planted.held(layer)]
        target = coordinates(source, vectors)[:, None, :].expand(*stream.shape[:2], -1)
        return set_coordinates(stream, target, where, vectors)

    def read(self, seen: dict[int, Tensor]) -> Float[Tensor, "batch k places"]:
        """Return the coordinates of each variable at its layer, and where all are built again."""
        columns = []
        for layers in self._planted.places:
            own = [
                coordinates(seen[layer], self._axes[layer])[:, self._planted.held(layer).index(i)]
                for i, layer in enumerate(layers)
            ]
            columns.append(torch.stack(own, dim=-1) if own else seen[self._planted.layer][:, :0])
        return torch.stack(columns, dim=-1)

    def power_off_axis(self, seen: dict[int, Tensor]) -> Float[Tensor, ""]:
        """Return the mean square off the axes, at the layers after which a decision is not built again."""
        layers = [self._planted.rebuilt] if self._planted.rebuilt is not None else self._planted.layers
        return torch.stack([off_axis(seen[layer], self._axes[layer]).square().mean() for layer in layers]).mean()


def draw_swaps(
    planted: Mechanism, values: Bool[np.ndarray, "batch k"], rng: np.random.Generator, replaced_share: float = 0.6
) -> Swaps:
    """Draw what the counterfactual branches of a batch with these decisions take from other rows."""
    n = len(values)
    sources, variables = choose_sources(values, rng), choose_variables(values.shape, rng)
    onwards = rng.random(n) < 0.5
    alone = (rng.random(n) < 0.4) if planted.rebuilt is not None else np.zeros(n, dtype=bool)
    strangers, replaced, blank = np.arange(n), np.zeros(n, dtype=bool), None
    if planted.blank_places or planted.elsewhere:
        strangers, replaced = rng.permutation(n), rng.random(n) < replaced_share
    if planted.blank_places:
        blank = planted.blank_places[int(rng.choice(len(planted.blank_places)))]
    tensor = torch.as_tensor
    return Swaps(
        tensor(sources), tensor(variables), tensor(onwards), tensor(alone), tensor(strangers), tensor(replaced), blank
    )


def choose_variables(shape: tuple[int, int], rng: np.random.Generator) -> Bool[np.ndarray, "batch k"]:
    """Choose a random non-empty set of variables to interchange for each row."""
    chosen = np.zeros(shape, dtype=bool)
    while shape[1] and not (filled := chosen.any(axis=1)).all():
        chosen[~filled] = rng.random((int((~filled).sum()), shape[1])) < 0.6
    return chosen


def choose_sources(values: Bool[np.ndarray, "batch k"], rng: np.random.Generator) -> Int[np.ndarray, " batch"]:
    """Choose each row's source of coordinates; half take one that decides otherwise, else most would change nothing."""
    sources = rng.permutation(len(values))
    differs = (values[:, None, :] != values[None, :, :]).any(axis=-1)
    for row in np.flatnonzero(rng.random(len(values)) < 0.5):
        if differs[row].any():
            sources[row] = rng.choice(np.flatnonzero(differs[row]))
    return sources
