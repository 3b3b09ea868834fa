"""Prompts that are continued many times: cached keys and values, next-token distributions, and decoding.

One prefill serves many responses, and rows that have ended leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from extract.backoff import is_out_of_memory
from extract.errors import UserError
from extract.model.backends import decoder_layers, stream_out
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass, Site, reader
from extract.model.kept_prompts import KeptPrompts
from extract.model.padded_batch import Batch
from extract.model.read_state import forgotten, move_rows, own_copy, replaces, state_of, tensors

# How a model goes on from prompts that it has read: by all further tokens at once; by one after another, where a state
# that was read is not used for several (Jamba); or not, so that every pass reads the prompt again.
Way = Literal["at once", "token by token", "from the start"]
_WAYS: WeakKeyDictionary[ChatModel, Way] = WeakKeyDictionary()
# The longest prompt that each model was checked on, with and without padding.
_CHECKED: WeakKeyDictionary[ChatModel, dict[bool, int]] = WeakKeyDictionary()
# Whether a model gives the same logits from the layers after each on.
_HOLDS: WeakKeyDictionary[ChatModel, dict[int, bool]] = WeakKeyDictionary()
# Next-token scores in float32, and which rows of the whole batch they are of (on the host) -> the next tokens.
Choose = Callable[[Float[Tensor, "rows vocabulary"], Int[Tensor, " rows"]], Int[Tensor, " rows"]]
Places = Int[Tensor, "batch places"]
# The tokens so far of each row that goes on -> the rows that need no more.
Settled = Callable[[Mapping[int, Sequence[int]]], AbstractSet[int]]
SETTLED_EVERY = 4  # tokens
ENDED = 1 / 8  # share of ended rows from which on they are taken out of the batch
ROOM = 64  # tokens for which a decoding's cache has room before it is copied again
CACHED_ROWS = 4  # distributions that are computed at once on a CPU, which takes .4 of the time of all at once
COMPARED = 4  # rows of a batch on which that is checked
FORGOTTEN = 0.2  # share of what forgetting a recurrent layer's state changes that rounding may reach
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # nats that rounding may cost a likely token, or a logit


@dataclass(frozen=True)
class CachedPrefix:
    """Tokens at the start of many prompts, with their keys and values."""

    token_ids: tuple[int, ...]
    cache: Any

    @torch.inference_mode()
    def copies(self, n: int) -> Any:
        """Return a copy of the keys and values for n rows."""
        cache = own_copy(self.cache)
        move_rows(cache, torch.zeros(n, dtype=torch.long))
        return cache


@torch.inference_mode()
def cache_prefix(model: ChatModel, token_ids: Sequence[int]) -> CachedPrefix:
    """Compute the keys and values of a prefix that many prompts share."""
    cache = state_of(model.run(model.decoder, model.pad([token_ids], "right"), use_cache=True))
    return CachedPrefix(tuple(token_ids), cache)


@dataclass(frozen=True)
class CachedPrompts:
    """Prompts with what the model remembers of all tokens except the last."""

    batch: Batch
    cache: Any  # None: every pass reads the prompts from the start
    by_token: bool = False
    edited: bool = False  # by edits that were open when the prompts were read, and need not be when it is gone on


@torch.inference_mode()
def cache_prompts(model: ChatModel, batch: Batch, kept: KeptPrompts | None = None) -> CachedPrompts:
    """Run all prompt tokens except the last, or take those kept, for edits that keep these tokens.

    The first way in which the model goes on from them is found once, and checked again for longer prompts, with and
    without padding. Raises UserError if padding changes what it answers, or if edits are open that would have to be
    kept where each pass reads the prompts again.
    """
    before = Batch(batch.tokens[:, :-1], batch.attention_mask[:, :-1], batch.prompt_length)
    checked, padded = _CHECKED.setdefault(model, {}), bool((batch.attention_mask == 0).any())
    length = batch.tokens.shape[1]
    ways: tuple[Way, ...] = get_args(Way)
    for way in ways[ways.index(_WAYS.get(model, ways[0])) :]:
        if way == "from the start" and model.edits:
            raise UserError(
                f"{model.name}: {model.architecture} does not go on from what it has read, so what edits did to a "
                "prompt cannot be kept; use another chat model"
            )
        if way == "from the start":
            cache = None
        elif kept is None or model.edits:
            cache = state_of(model.run(model.decoder, before, use_cache=True))
        else:
            cache = kept.read(before)
        cached = CachedPrompts(batch, cache, way == "token by token", edited=bool(model.edits))
        if length <= checked.get(padded, 0) or _continuation_holds(model, cached, way):
            checked[padded], _WAYS[model] = max(length, checked.get(padded, 0)), way
            return cached
        checked.clear()
    raise UserError(
        f"{model.name}: {model.architecture} answers a padded prompt otherwise than alone, and cannot continue from "
        "what it has read, so its onset scores cannot be computed; use another chat model"
    )


def way_of(model: ChatModel) -> Way:
    """Return how a model goes on from prompts that it has read, as far as is known."""
    return _WAYS.get(model, "at once")


def try_cache_prompts(model: ChatModel, batch: Batch, kept: KeptPrompts | None = None) -> CachedPrompts | None:
    """Return what `cache_prompts` does, None for a model that does not go on from it."""
    try:
        cached = None if way_of(model) == "from the start" else cache_prompts(model, batch, kept)
    except UserError:
        _WAYS[model] = "from the start"
        return None
    return cached if cached and cached.cache is not None else None


def rows_of(cached: CachedPrompts, rows: Int[Tensor, " rows"]) -> CachedPrompts:
    """Return some rows of the batch, in the given order; `rows` is on the host, as layers may be on several devices."""
    return _keep_rows(replace(cached, cache=own_copy(cached.cache)), rows)


def _keep_rows(cached: CachedPrompts, rows: Int[Tensor, " rows"]) -> CachedPrompts:
    """Return some rows of a batch whose cache is not used again."""
    batch = cached.batch
    if cached.cache is not None:
        move_rows(cached.cache, rows)
    fewer = replace(batch, tokens=batch.tokens[rows], attention_mask=batch.attention_mask[rows])
    return replace(cached, batch=fewer)


def continued_log_probs(
    model: ChatModel, cached: CachedPrompts, suffix: Int[Tensor, "batch more"], at: Places | None = None
) -> Float[Tensor, "batch places vocabulary"]:
    """Return the distributions at the places of `continued_logits`, in float32, differentiable."""
    if torch.is_grad_enabled() and not replaces(cached.cache):  # a step overwrites what its gradient needs
        if cached.edited:
            raise UserError(f"{model.architecture} cannot be differentiated after edits of its prompts")
        cached = replace(cached, cache=None)
    return _logits(model, cached, suffix, at).float().log_softmax(-1)


def log_probs_of(logits: Float[Tensor, "*rows vocabulary"], tokens: Sequence[int]) -> Float[Tensor, "*rows tokens"]:
    """Return the log-probabilities of some tokens, in float32; a few distributions at once stay in a core's cache."""
    flat = logits.reshape(-1, logits.shape[-1])
    parts = [flat] if flat.device.type != "cpu" else flat.split(CACHED_ROWS)
    found = torch.cat([part.float().log_softmax(-1)[:, list(tokens)] for part in parts])
    return found.reshape(*logits.shape[:-1], len(tokens))


@torch.inference_mode()
def continued_logits(
    model: ChatModel, cached: CachedPrompts, suffix: Int[Tensor, "batch more"], at: Places | None = None
) -> Float[Tensor, "batch places vocabulary"]:
    """Return the logits after the last prompt token and each further token; rows may be padded at their end.

    `at`: the places wanted of each row, 0 for the last prompt token; None: all.
    """
    return _logits(model, cached, suffix, at)


def _logits(model: ChatModel, cached: CachedPrompts, suffix: Tensor, at: Places | None = None) -> Tensor:
    """Return `continued_logits`, differentiable; no other logits are computed where one pass runs all tokens."""
    steps, at = suffix.shape[1] + 1, None if at is None else at.to(model.device)

    def pick(_module: nn.Module, _args: object, out: Any) -> None:
        hidden = out.last_hidden_state
        out["last_hidden_state"] = _picked(hidden[:, -steps:], at)

    early = at is not None and not cached.by_token
    handle = model.decoder.register_forward_hook(pick) if early else None
    try:
        passes = [out.logits for out in _continue(model, cached, suffix, model.model)]
    finally:
        if handle is not None:
            handle.remove()
    logits = passes[0] if len(passes) == 1 else torch.cat(passes, dim=1)
    if early:
        return logits
    return logits[:, -steps:] if at is None else _picked(logits[:, -steps:], at)


def _picked(values: Float[Tensor, "batch tokens n"], at: Places | None) -> Float[Tensor, "batch places n"]:
    assert at is not None
    return values.gather(1, at[..., None].to(values.device).expand(-1, -1, values.shape[-1]))


@torch.inference_mode()
def last_streams(
    model: ChatModel, cached: CachedPrompts, site: Site, layers: Sequence[int], edits: Sequence[Edit] = ()
) -> Float[Tensor, "layers batch d_model"]:
    """Return the stream at the last prompt token, in float32, after `edits` at the same site and layer."""
    seen: dict[int, Tensor] = {}

    def see(layer: int, stream: Tensor, _pass: Pass) -> None:
        seen[layer] = stream[:, -1].float().to(model.device)

    nothing = cached.batch.tokens[:, :0]
    with model.editing([*edits, *(reader(site, layer, partial(see, layer)) for layer in layers)]):
        _continue(model, cached, nothing, model.decoder)
    return torch.stack([seen[layer] for layer in layers])


def _continue(model: ChatModel, cached: CachedPrompts, suffix: Tensor, module: nn.Module) -> list[Any]:
    """Run the last prompt token and the tokens of a suffix; return the outputs of the passes."""
    batch, steps = cached.batch, suffix.shape[1] + 1
    tokens = torch.cat([batch.tokens, suffix], dim=1)
    mask = torch.cat([batch.attention_mask, torch.ones_like(suffix)], dim=1)
    if cached.cache is None:
        return [model.run(module, Batch(tokens, mask, batch.prompt_length))]
    positions, state, each = mask.cumsum(dim=1) - 1, own_copy(cached.cache), 1 if cached.by_token else steps
    passes = []
    for start in range(tokens.shape[1] - steps, tokens.shape[1], each):
        now = slice(start, start + each)
        part = Batch(tokens[:, now], mask[:, : now.stop], batch.prompt_length)
        passes.append(model.run(module, part, position_ids=positions[:, now], past_key_values=state))
    return passes


def _few(cached: CachedPrompts) -> CachedPrompts | None:
    """Return a few rows in another order, the most padded first; None if the cache does not move its whole state."""
    n = len(cached.batch.tokens)
    places = torch.linspace(n - 1, 0, min(COMPARED, n - 1 or 2)).round().long()
    rows = cached.batch.n_pad.argsort(stable=True).cpu()[places]
    try:
        few = rows_of(cached, rows)
    except (AttributeError, NotImplementedError):  # as of recurrent layers
        return None
    before, after = list(tensors(cached.cache)), list(tensors(few.cache))
    moved = len(before) == len(after) > 0 and all(_is_moved(a, b, rows, n) for a, b in zip(before, after, strict=True))
    return few if moved else None


def _is_moved(before: Tensor, after: Tensor, rows: Int[Tensor, " rows"], n: int) -> bool:
    """Return whether a tensor holds these of its n rows, bit for bit: a wrong state may change the output little."""
    if before.ndim == 0 or before.numel() == 0:  # a length, or nothing yet
        return True
    rows = rows.to(before.device)
    axes = (axis for axis, size in enumerate(before.shape) if size == n)
    return any(torch.equal(before.index_select(axis, rows), after) for axis in axes)


def _continuation_holds(model: ChatModel, whole_batch: CachedPrompts, way: Way) -> bool:
    """Compare three continued tokens with a full pass, which also finds state outside the cache.

    State inside it is compared by `_few`: a wrong one may cost less than rounding (0.0003 nats in Falcon-H1). Prompts
    that are read from the start are compared with each alone.
    """
    fresh = way == "from the start"
    if whole_batch.cache is None and not fresh:
        return False
    first = torch.arange(len(whole_batch.batch.tokens))[:COMPARED]
    if (cached := rows_of(whole_batch, first) if fresh else _few(whole_batch)) is None:
        return False
    if model.edits:  # they may differ by row
        cached = whole_batch
    batch = cached.batch
    extra = batch.tokens[:1, -3:].expand(len(batch.tokens), -1)
    mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
    whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
    try:
        last = continued_log_probs(model, cached, extra)[:, -1]
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # as of caches that take one token at a time
        if is_out_of_memory(error):
            raise
        return False
    parts = [_unpadded(whole, row) for row in range(len(batch.tokens))] if fresh else [whole]
    logits = torch.cat([model.run(model.model, part, logits_to_keep=1).logits[:, -1] for part in parts])
    expected = logits.float().log_softmax(dim=-1)
    likely = expected > -8
    off = (last - expected)[likely].abs().max()
    if off >= CLOSE.get(model.dtype, 1.0):
        return False
    for lost in forgotten(cached.cache):  # what is wrong by as much as if it were forgotten may be little, too
        without = continued_log_probs(model, replace(cached, cache=lost), extra)[:, -1]
        if off > FORGOTTEN * (without - expected)[likely].abs().max():
            return False
    return True


def _unpadded(batch: Batch, row: int) -> Batch:
    own, n_pad = slice(row, row + 1), int(batch.n_pad[row])
    return Batch(batch.tokens[own, n_pad:], batch.attention_mask[own, n_pad:], batch.prompt_length - n_pad)


class _RoomyLayer(DynamicLayer):
    """A cache layer with room for more tokens: a step writes its own and copies none."""

    def __init__(self, layer: DynamicLayer, room: int) -> None:
        super().__init__()
        self.__dict__ |= layer.__dict__
        self.keys: Tensor
        self.values: Tensor
        self._room, self._whole = room, list[Tensor]()

    def update(self, keys: Tensor, values: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        known, end = (self.keys, self.values), self.keys.shape[-2] + keys.shape[-2]
        if not self._whole or end > self._whole[0].shape[-2]:
            self._whole = [
                torch.cat([old, old.new_empty(*old.shape[:-2], self._room, old.shape[-1])], -2) for old in known
            ]
        for whole, new in zip(self._whole, (keys, values), strict=True):
            whole[..., end - new.shape[-2] : end, :] = new
        self.keys, self.values = (whole[..., :end, :] for whole in self._whole)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._whole = []

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)
        self._whole = []


def _with_room(cached: CachedPrompts, room: int) -> CachedPrompts:
    """Return a copy that a decoding may extend."""
    cache = own_copy(cached.cache)
    if type(cache) is DynamicCache:
        roomy = (
            _RoomyLayer(one, room) if type(one) is DynamicLayer and one.is_initialized else one for one in cache.layers
        )
        cache.layers = list(roomy)
    return replace(cached, cache=cache)


def likeliest(scores: Float[Tensor, "rows vocabulary"], _rows: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """Return the likeliest token of each row."""
    return scores.argmax(dim=-1)


@torch.inference_mode()
def decode_cached(
    model: ChatModel,
    cached: CachedPrompts,
    max_new_tokens: int,
    choose: Choose = likeliest,
    settled: Settled | None = None,
    *,
    stay: bool = False,
) -> list[list[int]]:
    """Return the response to each prompt under the open edits and processors, up to its end token included.

    Those of `ChatModel.generate` but for rounding. Edits may change no token before the last prompt token, and nothing
    may depend on a row's place in the batch, since rows that have ended leave it, unless they are to stay. Every
    `SETTLED_EVERY` tokens, `settled` may end further rows: theirs are the first tokens of the response.
    """
    responses: list[list[int]] = [[] for _ in cached.batch.tokens]
    ends, over, rows = set(model.eos_ids), set[int](), torch.arange(len(responses))
    left = _with_room(cached, min(max_new_tokens, ROOM))
    for step in range(max_new_tokens):
        scores = _next_scores(model, left)
        chosen = choose(scores, rows)
        for row, token in zip(rows.tolist(), chosen.tolist(), strict=True):
            if row not in over:
                responses[row].append(token)
                if token in ends:
                    over.add(row)
        if settled is not None and (step + 1) % SETTLED_EVERY == 0:
            over |= settled({row: responses[row] for row in rows.tolist() if row not in over})
        goes_on = torch.tensor([row not in over for row in rows.tolist()])
        if step == max_new_tokens - 1 or not goes_on.any():
            break
        batch, column = left.batch, chosen[:, None]
        mask = torch.cat([batch.attention_mask, torch.ones_like(column)], dim=1)
        longer = replace(batch, tokens=torch.cat([batch.tokens, column], dim=1), attention_mask=mask)
        left = replace(left, batch=longer)
        if not stay and int((~goes_on).sum()) >= ENDED * len(rows):
            left, rows = _keep_rows(left, goes_on.nonzero()[:, 0]), rows[goes_on]
    return responses


def _next_scores(model: ChatModel, cached: CachedPrompts) -> Float[Tensor, "rows vocabulary"]:
    """Run the last token of each row, which extends the cache, and return the next-token scores."""
    tail = replace(cached.batch, tokens=cached.batch.tokens[:, -1:])
    out = model.run(
        model.model, tail, position_ids=cached.batch.position_ids[:, -1:], past_key_values=cached.cache, use_cache=True
    )
    scores: Tensor = out.logits[:, -1].float()
    for processor in model.processors:
        scores = processor(cached.batch.tokens, scores)
    return scores


# -- passes over the upper layers alone --------------------------------------------------------------------------------
# Layers below an edit pass on what they are given, and the last of them gives the unedited stream; the rest runs as
# always, so masks, positions and cached layers stay right. Each layer is checked once: the unedited logits must be
# those of a whole pass, which they are not where an upper layer takes more from a lower one, as in Gemma 3n.


class KnownStream(NamedTuple):
    """The unedited stream after a layer at the last prompt token and at each token after it."""

    layer: int
    stream: Float[Tensor, "rows tokens d_model"]
    in_tuple: bool  # the layer's output is a tuple of the stream alone


def known_stream(
    model: ChatModel, cached: CachedPrompts, suffix: Int[Tensor, "rows more"], layer: int, at: Places | None = None
) -> KnownStream | None:
    """Return the stream after a layer; None if not `hooks`, edits are open, or blocks give more than the stream."""
    holds = _HOLDS.setdefault(model, {})
    if model.backend != "hooks" or model.edits or not holds.get(layer, True):
        return None
    seen: list[Any] = []
    handle = decoder_layers(model.model)[layer].register_forward_hook(lambda _module, _args, out: seen.append(out))
    try:
        whole = continued_logits(model, cached, suffix, at)
    finally:
        handle.remove()
    out = seen[0]
    known = KnownStream(layer, stream_out(out), isinstance(out, tuple))
    if layer not in holds:
        holds[layer] = (not known.in_tuple or len(out) == 1) and _gives(model, cached, suffix, at, known, whole)
    return known if holds[layer] else None


@contextmanager
def upper_layers(model: ChatModel, known: KnownStream) -> Iterator[None]:
    """Run only the layers after a known stream, in passes over its tokens; edits at its `resid_post` act on it."""
    skipped = decoder_layers(model.model)[: known.layer + 1]
    own = [layer.__dict__.get("forward") for layer in skipped]  # set where weights are offloaded

    def passing(hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Any:
        return (hidden_states,) if known.in_tuple else hidden_states

    try:
        for layer in skipped:
            layer.forward = passing if layer is not skipped[-1] else lambda *_, **__: passing(known.stream)
        yield
    finally:
        for layer, forward in zip(skipped, own, strict=True):
            if forward is None:
                layer.__dict__.pop("forward", None)
            else:
                layer.forward = forward


def _gives(
    model: ChatModel,
    cached: CachedPrompts,
    suffix: Tensor,
    at: Places | None,
    known: KnownStream,
    whole: Float[Tensor, "rows places v"],
) -> bool:
    try:
        with upper_layers(model, known):
            continued = continued_logits(model, cached, suffix, at)
    except (TypeError, AttributeError, IndexError, ValueError):  # blocks that are called in another way
        return False
    return bool((continued - whole).abs().max() < CLOSE.get(model.dtype, 0.25))
