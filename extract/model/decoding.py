"""Decoding settings for transformers' `generate`, and a callback for each step's tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

Watch = Callable[[list[int]], None]


@dataclass(frozen=True)
class Decoding:
    """Settings of greedy or beam decoding; `sampling.TokenSampler` samples."""

    max_new_tokens: int
    min_new_tokens: int = 0
    num_beams: int = 1
    use_cache: bool = True

    def config(self, eos_ids: Sequence[int], pad_id: int) -> GenerationConfig:
        """Return the settings as a transformers `GenerationConfig`."""
        return GenerationConfig(
            do_sample=False,
            num_beams=self.num_beams,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            use_cache=self.use_cache,
            eos_token_id=list(eos_ids) or None,
            pad_token_id=pad_id,
        )


class StepStreamer(BaseStreamer):
    """Calls a function with the tokens of each step, one per row; an exception in it ends the decoding."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._prompt_came = False

    def put(self, value: Int[Tensor, ...]) -> None:
        if self._prompt_came:
            self._watch(value.tolist())
        self._prompt_came = True  # transformers passes the prompts first

    def end(self) -> None:
        pass


@contextmanager
def without_own_config(model: PreTrainedModel) -> Iterator[None]:
    """Replace a model's generation_config while the block is open; transformers would take unset values from it."""
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def cut_at_end(response: Sequence[int], ends: Collection[int]) -> list[int]:
    """Return a response up to its first end token, without it."""
    end = next((index for index, token in enumerate(response) if token in ends), len(response))
    return list(response[:end])
