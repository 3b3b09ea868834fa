"""What prompts are answered under (edits, held gates, dials), and batches of prompts that are answered so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, decode_cached, rows_of, try_cache_prompts
from extract.model.decoding import SampledResponse, TokenSampler, cut_at_end
from extract.model.edit import Edit
from steering.controller import steering
from steering.dial import Dial
from steering.writer import ConstantGateWriter, held_edits


@dataclass(frozen=True)
class Setting:
    """Interventions on a model while it answers; they act in this order: edits, held gates, dials."""

    edits: Sequence[Edit] = ()
    held: Sequence[ConstantGateWriter] = ()  # gates held open or closed
    dials: Sequence[Dial] = ()

    @property
    def placed(self) -> list[Edit]:
        return [*self.edits, *held_edits(self.held)]


class PromptBatch:
    """A batch of prompts; the keys and values before each prompt's last token are computed once for all settings."""

    def __init__(self, model: ChatModel, rendered: Sequence[Rendered]) -> None:
        self._model, self.rendered = model, rendered

    def responses(self, setting: Setting, places: Sequence[int], max_new_tokens: int) -> list[list[int]]:
        """Return the greedy response to each of some prompts of the batch under a setting, without the end token."""
        keeps = not setting.dials and all(edit.keeps_prompt for edit in setting.placed)
        cached = self._of(places) if keeps else None
        if cached is None:
            return self._from_the_start(setting, places, max_new_tokens)
        biases = [bias for one in setting.held for bias in one.processors(cached.batch.prompt_length)]
        with self._model.editing(setting.placed, biases):
            responses = decode_cached(self._model, cached, max_new_tokens)
        return [cut_at_end(response, self._model.eos_ids) for response in responses]

    def samples(
        self, places: Sequence[int], max_new_tokens: int, seeds: Sequence[int], temperature: float, top_p: float
    ) -> list[SampledResponse]:
        """Return one sampled response to each of some prompts of the batch, as `ChatModel.sample` does."""
        cached = self._of(places)
        if cached is None:
            batch = self._model.batch([self.rendered[place] for place in places])
            return self._model.sample(batch, max_new_tokens, seeds, temperature, top_p)
        sampler = TokenSampler(seeds, max_new_tokens, temperature, top_p)
        responses = decode_cached(self._model, cached, max_new_tokens, sampler.choose)
        return sampler.sampled(responses, self._model.eos_ids)

    def _of(self, places: Sequence[int]) -> CachedPrompts | None:
        """Return some cached prompts of the batch; None if the model cannot go on from them."""
        if self._cached is None or len(places) == len(self.rendered):
            return self._cached
        return rows_of(self._cached, torch.tensor(places))

    @cached_property
    def _cached(self) -> CachedPrompts | None:
        return try_cache_prompts(self._model, self._model.batch(self.rendered))

    def _from_the_start(self, setting: Setting, places: Sequence[int], max_new_tokens: int) -> list[list[int]]:
        """Answer with a prefill of its own: where the prompts are changed or read, or cannot be continued."""
        rendered = [self.rendered[place] for place in places]
        batch = self._model.batch(rendered)
        biases = [bias for one in setting.held for bias in one.processors(batch.prompt_length)]
        with self._model.editing(setting.placed, biases), steering(self._model, setting.dials, batch, rendered):
            return self._model.generate(batch, max_new_tokens)
