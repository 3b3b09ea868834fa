"""Cached keys and values: of a prefix that prompts share, or of whole prompts that are continued many times."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass, Site
from extract.model.padded_batch import Batch


@dataclass(frozen=True)
class CachedPrefix:
    """Tokens that many prompts begin with, and their keys and values."""

    token_ids: tuple[int, ...]
    cache: Any

    @torch.inference_mode()
    def copies(self, n: int) -> Any:
        """Return the keys and values for n rows, to be continued."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(n)
        return cache


@torch.inference_mode()
def cache_prefix(model: ChatModel, token_ids: Sequence[int]) -> CachedPrefix:
    """Compute the keys and values of tokens that many prompts begin with."""
    cache = model.run(model.decoder, model.pad([token_ids], "right"), use_cache=True).past_key_values
    return CachedPrefix(tuple(token_ids), cache)


@dataclass(frozen=True)
class CachedPrompts:
    """A batch of prompts with the keys and values of all their tokens but the last."""

    batch: Batch
    cache: Any


@torch.inference_mode()
def cache_prompts(model: ChatModel, batch: Batch) -> CachedPrompts:
    """Run all prompt tokens but the last and keep their keys and values.

    Right for edits of scope `last_prompt` or `last_on` only: those never touch the cached tokens.

    Raises:
        UserError: the architecture's cache cannot be continued by several tokens (some recurrent ones cannot).
    """
    before = Batch(batch.tokens[:, :-1], batch.attention_mask[:, :-1], batch.prompt_length)
    cache = getattr(model.run(model.decoder, before, use_cache=True), "past_key_values", None)
    cached = CachedPrompts(batch, cache)
    if cache is None or not _continuation_holds(model, cached):
        raise UserError(f"{model.name}: {model.architecture} cannot go on from a remembered prompt, so its "
                        "onset scores cannot be computed; use an attention-only chat model")  # fmt: skip
    return cached


def repeat_batch(cached: CachedPrompts, times: int) -> CachedPrompts:
    """Return the whole batch `times` over, block after block, so that each block can carry an edit of its own."""
    batch, again = cached.batch, torch.arange(len(cached.batch.tokens)).repeat(times)
    cache = copy.deepcopy(cached.cache)
    cache.batch_select_indices(again)  # indices on the host, for layers may lie on several devices
    return CachedPrompts(replace(batch, tokens=batch.tokens[again], attention_mask=batch.attention_mask[again]), cache)


@torch.inference_mode()
def continued_log_probs(
    model: ChatModel, cached: CachedPrompts, continuation: Sequence[int]
) -> Float[Tensor, "batch steps vocabulary"]:
    """Return the distributions after the last prompt token and after each continuation token, in float32."""
    suffix = torch.tensor([list(continuation)], dtype=torch.long, device=model.device)
    return continued_logits(model, cached, suffix.expand(len(cached.batch.tokens), -1)).float().log_softmax(-1)


@torch.inference_mode()
def continued_logits(
    model: ChatModel, cached: CachedPrompts, suffix: Int[Tensor, "batch more"]
) -> Float[Tensor, "batch more+1 vocabulary"]:
    """Return the logits after the last prompt token and after each of its row's further tokens, as the model has them.

    Rows that are to go on for less are filled up at their ends with any token: no token sees what follows it.
    """
    logits: Tensor = _go_on(model, cached, suffix, model.model).logits
    return logits


@torch.inference_mode()
def last_streams(
    model: ChatModel, cached: CachedPrompts, site: Site, layers: Sequence[int], edits: Sequence[Edit] = ()
) -> Float[Tensor, "layers batch d_model"]:
    """Return the stream at the last prompt token, in float32; `edits` come before the look where they meet."""
    seen: dict[int, Tensor] = {}

    def look(layer: int) -> Edit:
        def function(stream: Tensor, _pass: Pass) -> Tensor:
            seen[layer] = stream[:, -1].float().to(model.device)
            return stream

        return Edit(site, layer, function)

    nothing = cached.batch.tokens[:, :0]
    with model.editing([*edits, *(look(layer) for layer in layers)]):
        _go_on(model, cached, nothing, model.decoder)
    return torch.stack([seen[layer] for layer in layers])


def _go_on(model: ChatModel, cached: CachedPrompts, suffix: Tensor, module: nn.Module) -> Any:
    batch, steps = cached.batch, suffix.shape[1] + 1
    mask = torch.cat([batch.attention_mask, torch.ones_like(suffix)], dim=1)
    tail = Batch(torch.cat([batch.tokens[:, -1:], suffix], dim=1), mask, batch.prompt_length)
    return model.run(
        module,
        tail,
        position_ids=(mask.cumsum(dim=1) - 1)[:, -steps:],
        past_key_values=copy.deepcopy(cached.cache),
    )


def _continuation_holds(model: ChatModel, cached: CachedPrompts) -> bool:
    """Compare three tokens more with a whole pass: a silent difference would be a wrong verdict."""
    batch = cached.batch
    extra = batch.tokens[:1, -3:].expand(len(batch.tokens), -1)
    mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
    whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
    expected = model.run(model.model, whole, logits_to_keep=1).logits[:, -1].float().log_softmax(dim=-1)
    found = continued_log_probs(model, cached, extra[0].tolist())[:, -1]
    likely = expected > -8
    return bool((found - expected)[likely].abs().max() < (0.05 if model.dtype == torch.float32 else 1.0))
