"""Passes over the upper layers alone: an edit leaves the layers below its own as they are without it.

The layers below pass on what they are given, and the last of them gives the stream of the unedited model. Everything
else of the model runs as always, so masks, positions and the indices of cached layers stay right. Each layer of
a model is checked once: the unedited logits must be those of a whole pass. They need not be where an upper layer takes
more than the stream from a lower one, such as its keys and values (as in Gemma 3n).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from extract.model.blocks import decoder_layers, stream_out
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, continued_logits

# Whether a model gives the same logits from the layers after each on.
_HOLDS: WeakKeyDictionary[ChatModel, dict[int, bool]] = WeakKeyDictionary()
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # most that unedited logits may differ; 0.25 in a shorter dtype


class KnownStream(NamedTuple):
    """The unedited stream after a layer at the last prompt token and at each token after it."""

    layer: int
    stream: Float[Tensor, "rows tokens d_model"]
    in_tuple: bool  # the layer's output is a tuple of the stream alone


def known_stream(
    model: ChatModel, cached: CachedPrompts, suffix: Int[Tensor, "rows more"], layer: int
) -> KnownStream | None:
    """Return the stream after a layer, from a whole pass; None where a pass must be whole.

    That is so with another backend than `hooks`, with open edits, or if the model's blocks give more than the stream.
    """
    holds = _HOLDS.setdefault(model, {})
    if model.backend != "hooks" or model.edits or not holds.get(layer, True):
        return None
    seen: list[Any] = []
    handle = decoder_layers(model.model)[layer].register_forward_hook(lambda _module, _args, out: seen.append(out))
    try:
        whole = continued_logits(model, cached, suffix)
    finally:
        handle.remove()
    out = seen[0]
    known = KnownStream(layer, stream_out(out), isinstance(out, tuple))
    if layer not in holds:
        holds[layer] = (not known.in_tuple or len(out) == 1) and _gives(model, cached, suffix, known, whole)
    return known if holds[layer] else None


@contextmanager
def upper_layers(model: ChatModel, known: KnownStream) -> Iterator[None]:
    """Run only the layers after that of a known stream inside the block; edits at its `resid_post` act on the stream.

    Every pass inside must be over the tokens of the known stream.
    """
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
    model: ChatModel, cached: CachedPrompts, suffix: Tensor, known: KnownStream, whole: Float[Tensor, "rows tokens v"]
) -> bool:
    try:
        with upper_layers(model, known):
            continued = continued_logits(model, cached, suffix)
    except (TypeError, AttributeError, IndexError, ValueError):  # blocks that are called in another way
        return False
    return bool((continued - whole).abs().max() < CLOSE.get(model.dtype, 0.25))
