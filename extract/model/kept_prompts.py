"""Keys and values of prompts that are read once and answered many times, kept in memory without padding.

The pass that captures a prompt's activations computes them, so its plain answer and those under interventions need no
other pass over the prompt. A prompt that is not kept is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch
from extract.model.read_state import state_of

SHARE = 1 / 4  # of the memory that would be free without them: processes that share a machine leave room for each other


@dataclass(frozen=True, eq=False)
class _Tokens:
    """The keys and values of the tokens of one pass, by layer; what its prompts share is there once."""

    layers: tuple[tuple[Float[Tensor, "tokens heads d_key"], Float[Tensor, "tokens heads d_value"]], ...]

    @property
    def n_bytes(self) -> int:
        return sum(each.numel() * each.element_size() for layer in self.layers for each in layer)


_Before = tuple[int, ...]  # the token ids of a prompt without the last
_Row = tuple[_Tokens, Int[Tensor, " tokens"]]  # a prompt's tokens, and their places


class KeptPrompts:
    """Keys and values of all tokens but the last of some prompts, as far as memory reaches.

    None makes room for another: stages read all prompts in the same order, so that the one used last is needed last.
    """

    def __init__(self, model: ChatModel, prompts: Sequence[Sequence[int]], most_bytes: int | None = None) -> None:
        """Keep these prompts, given as token ids, once a pass has read them; by default in a share of free memory."""
        self._model, self._wanted = model, {tuple(prompt[:-1]) for prompt in prompts}
        self._most, self._bytes, self._full = most_bytes, 0, False
        self._rows: dict[_Before, _Row] = {}

    def wants(self, before: _Before) -> bool:
        """Return whether to keep a prompt, given without its last token, when a pass has read it."""
        return not self._full and before in self._wanted and before not in self._rows

    @torch.inference_mode()
    def keep(self, prompts: Sequence[_Before], cache: Any, n_pad: Sequence[int], n_shared: int = 0) -> None:
        """Keep the wanted prompts of a pass, each after its padding; all begin with the same `n_shared` tokens."""
        own = [i for i, before in enumerate(prompts) if self.wants(before)]
        before = [prompts[i] for i in own]
        self._add(before, _split(cache, own, before, [n_pad[i] for i in own], n_shared))

    @torch.inference_mode()
    def read(self, batch: Batch) -> Any:
        """Return the keys and values of a left-padded batch of prompts without their last tokens, under no edits."""
        tokens, n_pad = batch.tokens.tolist(), batch.n_pad.tolist()
        prompts = [tuple(row[n:]) for row, n in zip(tokens, n_pad, strict=True)]
        rows = {i: self._rows[before] for i, before in enumerate(prompts) if before in self._rows}
        if not rows:
            cache = self._run(batch)
            self.keep(prompts, cache, n_pad)
            return cache
        if missing := [i for i in range(len(prompts)) if i not in rows]:
            first = min(n_pad[i] for i in missing)
            part = Batch(batch.tokens[missing, first:], batch.attention_mask[missing, first:], batch.prompt_length)
            before = [prompts[i] for i in missing]
            new = _split(self._run(part), range(len(missing)), before, [n_pad[i] - first for i in missing])
            if not new:  # longer than a sliding window
                return self._run(batch)
            self._add(before, new)
            rows |= dict(zip(missing, new, strict=True))
        return _joined(
            [rows[i] for i in range(len(prompts))], len(tokens[0]), DynamicCache(config=self._model.model.config)
        )

    def _run(self, batch: Batch) -> Any:
        return state_of(self._model.run(self._model.decoder, batch, use_cache=True))

    def _add(self, prompts: Sequence[_Before], rows: Sequence[_Row]) -> None:
        """Add the rows of one pass, if there is room and one is wanted."""
        wanted = {before: row for before, row in zip(prompts, rows, strict=False) if self.wants(before)}
        if not wanted:
            return
        n_bytes = self._bytes + rows[0][0].n_bytes
        if n_bytes <= (SHARE * (self._bytes + _free(self._model.device)) if self._most is None else self._most):
            self._bytes = n_bytes
            self._rows |= wanted
        else:
            self._full = True


def _free(device: torch.device) -> int:
    """Return the free bytes of a device's memory."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def _split(
    cache: Any, own: Sequence[int], prompts: Sequence[_Before], n_pad: Sequence[int], n_shared: int = 0
) -> list[_Row]:
    """Return some rows of a cache without their padding; [] if it does not hold every token at each layer."""
    layers = cache.layers if type(cache) is DynamicCache else []
    whole = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) and layer.is_initialized for layer in layers)
    if not (own and layers and whole) or any(layer.keys.shape[2] < layer.get_seq_length() for layer in layers):
        return []
    places, rows, columns = list[list[int]](), list[int](), list[int]()
    for i, before, first in zip(own, prompts, n_pad, strict=True):
        start = n_shared if places else 0  # what is shared is taken of the first row
        places.append([*range(start), *range(len(rows), len(rows) + len(before) - start)])
        rows += [i] * (len(before) - start)
        columns += range(first + start, first + len(before))
    at = torch.tensor(rows), torch.tensor(columns)
    tokens = _Tokens(tuple((layer.keys.transpose(1, 2)[at], layer.values.transpose(1, 2)[at]) for layer in layers))
    return [(tokens, torch.tensor(each)) for each in places]


def _joined(rows: Sequence[_Row], length: int, cache: DynamicCache) -> DynamicCache:
    """Return a cache of rows, padded on the left to a length."""
    by_pass = defaultdict[_Tokens, list[int]](list)
    for i, (tokens, _) in enumerate(rows):
        by_pass[tokens].append(i)
    index = {
        tokens: torch.stack([pad(rows[i][1], (length - len(rows[i][1]), 0)) for i in own]).flatten()
        for tokens, own in by_pass.items()
    }
    for layer in range(len(rows[0][0].layers)):
        both = list[Tensor]()
        for kind in range(2):
            like = rows[0][0].layers[layer][kind]
            joined = like.new_empty(len(rows), length, *like.shape[1:])
            for tokens, own in by_pass.items():
                read = tokens.layers[layer][kind].index_select(0, index[tokens].to(like.device))
                joined[own] = read.unflatten(0, (len(own), length))
            both.append(joined.transpose(1, 2))
        cache.update(both[0], both[1], layer)
    return cache
