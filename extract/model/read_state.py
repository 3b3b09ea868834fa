"""What a model remembers of the tokens that it has read: keys and values, and the state of recurrent layers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

KEYS = ("past_key_values", "cache_params")  # what modules call it; the second, those without attention
CACHE = "cache"  # what transformers gives from 5.24 on instead of the first, which is still accepted
GIVEN_AS = (*KEYS, CACHE)
_REPLACE = (DynamicLayer, DynamicSlidingWindowLayer)  # layers that never write into their tensors


def key_of(module: nn.Module) -> str:
    """Return the name of the argument in which a module takes it."""
    taken = inspect.signature(module.forward).parameters
    return next((key for key in GIVEN_AS if key in taken), KEYS[0])


def without_attention(state: Any) -> bool:
    """Return whether a state is of recurrent layers alone."""
    alone = [layer for layer in _recurrent(state) if not isinstance(layer, DynamicLayer)]  # it may be both
    return bool(alone) and len(alone) == len(state.layers)


def state_of(held: Any) -> Any:
    """Return the state in a module's output or keyword arguments; None if there is none."""
    found = dict(held) if isinstance(held, Mapping) else vars(held)  # an output itself warns of names it had before
    return next((found[key] for key in GIVEN_AS if found.get(key) is not None), None)


def replaces(state: Any) -> bool:
    """Return whether a pass that extends the state writes into none of its tensors."""
    return type(state) is DynamicCache and all(type(layer) in _REPLACE for layer in state.layers)


def own_copy(state: Any) -> Any:
    """Return a copy that a pass may extend; layers that replace their tensors share these."""
    if not replaces(state):
        return copy.deepcopy(state)
    copied = copy.copy(state)
    copied.layers = [copy.copy(layer) for layer in state.layers]
    return copied


def move_rows(state: Any, rows: Int[Tensor, " rows"]) -> None:
    """Put some of the rows, given on the host and in any order or number, in place of all rows.

    By `reorder_cache` where there are recurrent layers, whose `batch_select_indices` is absent or moves keys and values
    alone (transformers 5.23). Raises AttributeError or NotImplementedError where a state cannot be moved.
    """
    (state.reorder_cache if _recurrent(state) else state.batch_select_indices)(rows)


def _recurrent(state: Any) -> list[Any]:
    return [layer for layer in getattr(state, "layers", ()) if isinstance(layer, LinearAttentionCacheLayerMixin)]


def forgotten(state: Any) -> list[Any]:
    """Return copies whose recurrent layers have lost one kind of state each: of the convolution, or what recurs."""
    copies = list[Any]()
    for kind in ("conv_states", "recurrent_states"):
        copied = copy.deepcopy(state)
        held = [each for layer in _recurrent(copied) for each in getattr(layer, kind).values() if each is not None]
        copies += [copied] if held else []
        for each in held:
            each.zero_()
    return copies


def tensors(state: Any) -> Iterator[Tensor]:
    """Yield the tensors of a state, of its layers, and of the lists and dictionaries in them."""
    if isinstance(state, Tensor):
        yield state
        return
    parts = getattr(state, "__dict__", state)
    for part in parts.values() if isinstance(parts, dict) else parts if isinstance(parts, list | tuple) else ():
        yield from tensors(part)
