"""Batched interventions: many trials on the same prompts in few forward passes, each on its own rows of the batch.

A pass runs only the layers from the lowest edited one on: below it, all is as without the edits. So trials are put into
passes by their layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.continuation import (
    CachedPrompts,
    KnownStream,
    Places,
    cache_prompts,
    continued_logits,
    decode_cached,
    known_stream,
    last_streams,
    rows_of,
    upper_layers,
)
from extract.model.decoding import cut_at_end
from extract.model.edit import Edit, Site
from extract.model.read_state import tensors
from steering.interventions import for_rows

Trial = Sequence[Edit]  # edits that are tried together
MOST_ROWS = 256  # rows of a pass; more rows make a device little faster
MOST_LOGITS = 1 << 25  # logits of a pass (rows x steps x vocabulary): 128 MiB in float32
MOST_KEPT = 1 << 31  # numbers in the caches of a pass that answers
WIDTH = 1 << 14  # numbers that a token of a thought takes in a pass, about; of its distribution none
NO_LAYER = -1


@dataclass(frozen=True)
class TrialBatch:
    """One forward pass: the cached prompts repeated once for each trial, and the edits of these trials."""

    cached: CachedPrompts
    edits: list[Edit]
    trials: list[int]  # which of all trials
    n_rows: int
    unedited: int  # the last layer whose stream no edit changes; NO_LAYER: none

    def split(self, values: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "trials rows_each ..."]:
        return values.reshape(-1, self.n_rows, *values.shape[1:])[: len(self.trials)]


class RepeatedPrompts:
    """Prompts whose keys and values are computed once and repeated for each trial of a pass."""

    def __init__(
        self, model: ChatModel, rows: Sequence[Rendered], thoughts: Sequence[Sequence[int]] = (), n_new: int = 0
    ) -> None:
        """`thoughts`: what each prompt is followed by before a suffix, under the edits too; `n_new`: most responses."""
        self.n_rows, self._n_new = len(rows), n_new
        self._model = model
        self._thoughts = [list(thought) for thought in thoughts]
        self._vocabulary = int(model.model.config.get_text_config().vocab_size)
        self.once = cache_prompts(model, model.batch(list(rows)))
        self._repeated = (1, self.once)  # the last number of times; keeping all would fill the memory
        self._known: dict[tuple[str, int], KnownStream | None] = {}

    def passes(self, trials: Sequence[Trial], n_distributions: int) -> Iterator[TrialBatch]:
        """Yield the passes that cover all trials, ordered by the lowest layer that they edit.

        All repeat the prompts equally often (the last may leave some repetitions unedited), and each computes n next-
        token distributions for each row.
        """
        logits = self.n_rows * n_distributions * self._vocabulary  # of one trial
        logits = max(logits, self.n_rows * WIDTH * max(map(len, self._thoughts), default=0))
        most = min(MOST_ROWS // self.n_rows, MOST_LOGITS // max(1, logits))
        if self._n_new:
            prompt, kept = self.once.batch.tokens.shape[1], sum(part.numel() for part in tensors(self.once.cache))
            most = min(most, int(MOST_KEPT / max(1, kept * (1 + self._n_new / prompt))))
        most = max(1, most)
        n = -(-len(trials) // -(-len(trials) // most))  # passes are of similar size
        lowest = ([edit.layer - (edit.site != "resid_post") for edit in trial] for trial in trials)
        below = [min(layers, default=self._model.n_layers - 1) for layers in lowest]  # the last that stays as it is
        order = sorted(range(len(trials)), key=lambda i: below[i])
        for start in range(0, len(trials), n):
            held = order[start : start + n]
            placed = [(slice(i * self.n_rows, (i + 1) * self.n_rows), trials[at]) for i, at in enumerate(held)]
            edits = [for_rows(edit, rows) for rows, trial in placed for edit in trial]
            yield TrialBatch(self.times(n), edits, held, self.n_rows, min(below[at] for at in held))

    def logits(
        self, batch: TrialBatch, suffix: Int[Tensor, "rows_each more"]
    ) -> Float[Tensor, "rows more+1 vocabulary"]:
        """Return the logits under a pass's edits, after the last prompt token and each token of a suffix."""
        times = len(batch.cached.batch.tokens) // self.n_rows
        tokens, at = self.after_thoughts(suffix)
        places = None if at is None else at.repeat(times, 1)
        with self._above(batch, tokens, at), self._model.editing(batch.edits):
            return continued_logits(self._model, batch.cached, tokens.repeat(times, 1), places)

    def responses(self, batch: TrialBatch, max_new_tokens: int) -> list[list[int]]:
        """Return the greedy response of each row of a pass under its edits, without the end token."""
        with self._model.editing(batch.edits):
            if batch.cached.cache is None:
                return self._model.generate(batch.cached.batch, max_new_tokens, use_cache=False)
            said = decode_cached(self._model, batch.cached, max_new_tokens, stay=True)
        return [cut_at_end(response, self._model.eos_ids) for response in said]

    def last_streams(
        self, batch: TrialBatch, where: Site, layers: Sequence[int]
    ) -> Float[Tensor, "layers rows d_model"]:
        """Return the stream at the last prompt token, in float32, after a pass's edits at the same site and layer."""
        nothing = batch.cached.batch.tokens[: self.n_rows, :0]
        above = self._above(batch, nothing) if min(layers) >= batch.unedited else nullcontext()
        with above:
            return last_streams(self._model, batch.cached, where, layers, batch.edits)

    def plain_logits(self, suffix: Int[Tensor, "rows_each more"]) -> Float[Tensor, "rows_each more+1 vocabulary"]:
        return continued_logits(self._model, self.once, *self.after_thoughts(suffix))

    def after_thoughts(
        self, suffix: Int[Tensor, "rows_each more"]
    ) -> tuple[Int[Tensor, "rows_each all"], Places | None]:
        """Return the thoughts with a suffix after each, padded at their end, and the places of the tokens before and in
        the suffix; None where nothing was thought.
        """
        if not any(self._thoughts):
            return suffix, None
        own = [[*thought, *row] for thought, row in zip(self._thoughts, suffix.tolist(), strict=True)]
        longest = max(map(len, own))
        tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in own], device=suffix.device)
        before = torch.tensor([[len(thought)] for thought in self._thoughts], device=suffix.device)
        return tokens, before + torch.arange(suffix.shape[1] + 1, device=suffix.device)

    def times(self, n: int) -> CachedPrompts:
        if n == 1:
            return self.once
        if n != self._repeated[0]:
            self._repeated = (n, rows_of(self.once, torch.arange(self.n_rows).repeat(n)))  # block after block
        return self._repeated[1]

    @contextmanager
    def _above(
        self,
        batch: TrialBatch,
        suffix: Int[Tensor, "rows_each more"],
        at: Int[Tensor, "rows_each places"] | None = None,
    ) -> Iterator[None]:
        """Run only the layers above those that no edit of the pass changes, inside the block, if possible."""
        key, known = (str(suffix.tolist()), batch.unedited), None
        if self._thoughts:  # streams of whole thoughts: those of one layer at a time, as passes are ordered by it
            self._known = {of: stream for of, stream in self._known.items() if of[1] == batch.unedited}
        if batch.unedited != NO_LAYER and not self._model.edits:
            if key not in self._known:
                self._known[key] = known_stream(self._model, self.once, suffix, batch.unedited, at)
            known = self._known[key]
        if known is None:
            yield
            return
        times = len(batch.cached.batch.tokens) // self.n_rows
        with upper_layers(self._model, known._replace(stream=known.stream.repeat(times, 1, 1))):
            yield
