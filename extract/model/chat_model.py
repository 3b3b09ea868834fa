"""An open-weight chat model behind one interface: encode, capture, edit, generate, sample.

The model is bitwise the same after use, also after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from extract.chat.render import Rendered
from extract.chat.thinking import is_mark
from extract.errors import UserError
from extract.model.backends import BACKENDS, decoder_layers, run_edited
from extract.model.decoding import SampledResponse, StepStreamer, TokenSampler, Watch, cut_at_end
from extract.model.edit import Edit, Pass, Site, Stream, reader
from extract.model.loading_options import BackendName
from extract.model.padded_batch import Batch, Side, pad
from extract.model.read_state import key_of, state_of, without_attention
from extract.model.weights import cast_fingerprint, fingerprint, input_device, use_fast_products, weights_of

T = TypeVar("T")


class ChatModel:
    """A causal language model with a chat template."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        revision: str = "",
        backend: BackendName = "hooks",
    ) -> None:
        model.eval()
        use_fast_products(model)
        self.tokenizer = tokenizer
        self.name = name
        self.revision = revision
        self.architecture: str = type(model).__name__
        self.n_layers: int = len(decoder_layers(model))
        self.d_model: int = int(model.config.get_text_config().hidden_size)
        replaces = backend == "transformer_lens"
        self._fingerprints = (fingerprint(model), cast_fingerprint(weights_of(model))) if replaces else None
        self._backend = BACKENDS[backend](model, tokenizer)
        self.model: PreTrainedModel = self._backend.model
        self.decoder: nn.Module = self.model.base_model
        self._state_key = key_of(self.decoder)
        self.edits: tuple[Edit, ...] = ()  # of the open `editing` blocks
        self.processors: tuple[LogitsProcessor, ...] = ()
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (self.eos_ids or [0])[0]

    def __repr__(self) -> str:
        of = f"{self.architecture}, {self.n_layers} layers, d_model {self.d_model}"
        return f"{type(self).__name__}({self.name!r}, {of}, {self.dtype} on {self.device})".replace("torch.", "")

    @property
    def backend(self) -> BackendName:
        return self._backend.name

    @property
    def device(self) -> torch.device:
        """Where inputs go: the device of the weights, or the one that computes with offloaded weights."""
        return input_device(self.model)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def context(self) -> int | None:
        """The most tokens that the model reads, by its configuration; None where that does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or None

    @property
    def eos_ids(self) -> list[int]:
        """All end-of-sequence tokens: a chat model often has several."""
        own = self.model.generation_config
        sources = (self.tokenizer, self.model.config.get_text_config(), *([own] if own else []))
        lists = [source.eos_token_id for source in sources]
        return sorted(
            {int(i) for ids in lists for i in (ids if isinstance(ids, list | tuple) else [ids]) if i is not None}
        )

    def fingerprint(self) -> str:
        """Return the weights' fingerprint, the same for every backend."""
        return self._fingerprints[0] if self._fingerprints else fingerprint(self.model)

    def cast_fingerprint(self) -> str:
        """Return a fingerprint that is the same for these weights in float32 and in bfloat16."""
        return self._fingerprints[1] if self._fingerprints else cast_fingerprint(weights_of(self.model))

    def batch(self, rows: Sequence[Rendered], side: Side = "left") -> Batch:
        """Pad prompts: left for generation, right for reading."""
        return self.pad([row.token_ids for row in rows], side)

    def pad(self, rows: Sequence[Sequence[int]], side: Side) -> Batch:
        """Pad rows of token ids; raises UserError if one is longer than the model's context."""
        return pad(rows, self._pad_id, side, self.device, self.context)

    def decode(self, response: Sequence[int]) -> str:
        """Turn response tokens into text, without special tokens except those that open or close a thought."""
        return self.decode_piece(response).strip()

    def decode_piece(self, tokens: Sequence[int]) -> str:
        """Turn some tokens of a response into text as `decode` does, with the blanks at its ends."""
        special = self._special
        if not any(special.get(i) for i in tokens):
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
        return str(self.tokenizer.decode([i for i in tokens if special.get(i, True)]))

    def pieces(self, response: Sequence[int]) -> list[str]:
        """Return the text of each token."""
        return [self.decode_piece([token]) for token in response]

    @cached_property
    def _special(self) -> dict[int, bool]:
        """Special tokens, and whether each opens or closes a thought; cached, since the tokenizer rebuilds its list."""
        added = self.tokenizer.added_tokens_decoder
        return {i: is_mark(str(token)) for i, token in added.items() if token.special}

    # -- capturing and editing -----------------------------------------------------------------------------------------

    @contextmanager
    def editing(self, edits: Sequence[Edit], processors: Sequence[LogitsProcessor] = ()) -> Iterator[None]:
        """Apply edits to every forward pass inside the block, in order at each place, and processors to decoding.

        Direct calls of `self.model` are not edited. Raises UserError if the layer of an edit does not exist.
        """
        for edit in edits:
            if not 0 <= edit.layer < self.n_layers:
                raise UserError(f"layer {edit.layer} does not exist: {self.name} has layers 0 to {self.n_layers - 1}")
        self.edits, self.processors = (*self.edits, *edits), (*self.processors, *processors)
        try:
            yield
        finally:  # another thread's block may still be open, so only this block's own edits are removed
            self.edits, self.processors = _without(self.edits, edits), _without(self.processors, processors)

    def capture(
        self,
        batch: Batch,
        site: Site,
        layers: Sequence[int],
        keep: Callable[[int, Stream], None],
        past_key_values: Any = None,
        *,
        every_layer: bool = False,
    ) -> Any:
        """Run the prompts and call `keep(layer, stream)` for each of `layers`; no layer after the last of them is run.

        With `past_key_values` of a prefix, one copy per row, `batch` and stream hold only the tokens after it. With
        `every_layer` all layers run, and all keys and values are returned.
        """

        def see(layer: int, stream: Stream, _pass: Pass) -> None:
            keep(layer, stream)
            if layer == max(layers) and not every_layer:
                raise _LastLayerCaptured

        extra = {"use_cache": True} if every_layer else {}
        extra |= {} if past_key_values is None else {"past_key_values": past_key_values}
        with (
            self.editing([reader(site, layer, partial(see, layer)) for layer in layers]),
            torch.inference_mode(),
            suppress(_LastLayerCaptured),
        ):
            return state_of(self.run(self.decoder, batch, **extra))

    @torch.inference_mode()
    def logits(self, batch: Batch) -> Float[Tensor, "batch time vocabulary"]:
        """Return the logits at every token."""
        out: Tensor = self.run(self.model, batch).logits
        return out

    @torch.inference_mode()
    def generate(
        self,
        batch: Batch,
        max_new_tokens: int,
        min_new_tokens: int = 0,
        *,
        num_beams: int = 1,
        use_cache: bool = True,
        watch: Watch | None = None,
    ) -> list[list[int]]:
        """Decode greedily and return response tokens, without the end token; the model's generation_config is ignored.

        Args:
            num_beams: above 1, return the likeliest whole response found by beam search.
            use_cache: False runs all tokens again at every step, which gives the same response and is slow.
            watch: called with each step's tokens, one per row; not with beam search.
        """
        if watch is not None and num_beams > 1:
            raise UserError("beam search knows its tokens only at the end, so they cannot be watched; use num_beams=1")
        settings = {"min_new_tokens": min_new_tokens, "num_beams": num_beams, "use_cache": use_cache}
        responses = self._decode(batch, max_new_tokens, (), watch, **settings)
        return [cut_at_end(response, self.eos_ids) for response in responses]

    @torch.inference_mode()
    def sample(
        self,
        batch: Batch,
        max_new_tokens: int,
        seeds: Sequence[int],
        temperature: float | Sequence[float] = 1.0,
        top_p: float | Sequence[float] = 1.0,
        *,
        watch: Watch | None = None,
    ) -> list[SampledResponse]:
        """Sample one response per row; the same seed gives the same response, independent of the rest of the batch.

        Known limit: the batch changes floating-point sums slightly, which rarely changes a token.

        Args:
            seeds: one per row, not negative; rows of one prompt with different seeds are independent samples.
            temperature: divides the logits, for all rows or one per row; 0 takes the likeliest token.
            top_p: probability of the nucleus (arXiv 1904.09751), for all rows or one per row.
            watch: as for `generate`.
        """
        sampler = TokenSampler(seeds, max_new_tokens, temperature, top_p)
        responses = self._decode(batch, max_new_tokens, [sampler], watch)  # the sampler leaves one token
        return sampler.sampled(responses, self.eos_ids)

    def _decode(
        self,
        batch: Batch,
        max_new_tokens: int,
        processors: Sequence[LogitsProcessor],
        watch: Watch | None,
        **settings: int,
    ) -> list[list[int]]:
        """Return the tokens after the prompts, up to the longest response; rows that end early are padded."""
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            **{"min_new_tokens": 0, "num_beams": 1, "use_cache": True} | settings,
            eos_token_id=self.eos_ids or None,  # some end tokens are only in the model's own settings
            pad_token_id=self._pad_id,
        )
        # transformers would take unset values from the model's own settings
        with patch.object(self.model, "generation_config", GenerationConfig()):
            out = self._call(
                lambda: self.model.generate(
                    batch.tokens,
                    attention_mask=batch.attention_mask,
                    generation_config=config,
                    logits_processor=LogitsProcessorList([*self.processors, *processors]),
                    streamer=None if watch is None else StepStreamer(watch),
                ),
                batch.prompt_length,
            )
        responses: list[list[int]] = out[:, batch.tokens.shape[1] :].tolist()
        return responses

    def run(self, module: nn.Module, batch: Batch, **extra: Any) -> Any:
        """Run one forward pass of the model, or of its decoder only, with the edits of the open `editing` blocks."""
        if batch.side == "left":
            extra = {"attention_mask": batch.attention_mask, "position_ids": batch.position_ids} | extra
        state = extra.pop("past_key_values", None)
        extra = {"use_cache": state is not None} | extra
        n_read = batch.attention_mask.shape[1] - batch.tokens.shape[1]
        if state is not None:
            extra[self._state_key] = state
        if without_attention(state):  # a mask of these tokens only
            extra["attention_mask"] = batch.attention_mask[:, n_read:]
        return self._call(lambda: module(input_ids=batch.tokens, **extra), batch.prompt_length, n_read)

    def _call(self, call: Callable[[], T], prompt_length: int, n_read: int = 0) -> T:
        name = f"{self.name}: {self.architecture}"
        return run_edited(self._backend, self.decoder, call, self.edits, prompt_length, name, n_read)


class _LastLayerCaptured(Exception):  # noqa: N818 - no error
    """Stops the forward pass after the last captured layer."""


def _without(items: Sequence[T], gone: Sequence[T]) -> tuple[T, ...]:
    """Return items without the last occurrence of each of some of them."""
    left = list(items)
    for item in reversed(gone):
        del left[max(i for i, other in enumerate(left) if other is item)]
    return tuple(left)
