"""An open-weight chat model behind one interface: encode, capture, edit, generate, sample.

How the residual stream is reached is the backend's (`backends`); everything else is here, once. The model is
bitwise the same after use, whatever happens. Left padding with explicit positions wherever a pass may go on generating;
right padding, which needs no mask, where a prompt is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from extract.chat.render import Rendered
from extract.chat.thinking import is_mark
from extract.errors import UserError
from extract.model.backends import BackendName, open_backend
from extract.model.blocks import decoder_layers
from extract.model.decoding import Decoding, StepStreamer, Watch, cut_at_end, without_own_config
from extract.model.edit import Edit, Pass, Site, Stream
from extract.model.edited_pass import run_edited
from extract.model.fingerprint import fingerprint
from extract.model.padded_batch import Batch, Side, pad
from extract.model.sampling import SampledResponse, TokenSampler

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
        self.tokenizer = tokenizer
        self.name = name
        self.revision = revision
        self.architecture = type(model).__name__
        self.n_layers = len(decoder_layers(model))
        self.d_model = int(model.config.get_text_config().hidden_size)
        self._rebuilt_fingerprint = fingerprint(model) if backend == "transformer_lens" else None
        self._backend = open_backend(backend, model, tokenizer)
        self.model = self._backend.model
        self.decoder: nn.Module = self.model.base_model
        self._edits: list[Edit] = []
        self._processors: list[LogitsProcessor] = []
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (self.eos_ids or [0])[0]

    def __repr__(self) -> str:
        of = f"{self.architecture}, {self.n_layers} layers, d_model {self.d_model}"
        return f"{type(self).__name__}({self.name!r}, {of}, {self.dtype} on {self.device})".replace("torch.", "")

    @property
    def backend(self) -> BackendName:
        return self._backend.name

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def eos_ids(self) -> list[int]:
        """All end-of-sequence tokens: a chat model often has several."""
        own = self.model.generation_config
        sources = (self.tokenizer, self.model.config.get_text_config(), *([own] if own else []))
        found = [source.eos_token_id for source in sources]
        return sorted(
            {int(i) for ids in found for i in (ids if isinstance(ids, list | tuple) else [ids]) if i is not None}
        )

    def fingerprint(self) -> str:
        """Return the weights' fingerprint, whatever backend runs them."""
        return self._rebuilt_fingerprint or fingerprint(self.model)

    # -- tokens --------------------------------------------------------------------------------------------------------

    def batch(self, rows: Sequence[Rendered], side: Side = "left") -> Batch:
        """Pad prompts, on the left unless they are only to be read."""
        return self.pad([row.token_ids for row in rows], side)

    def pad(self, rows: Sequence[Sequence[int]], side: Side) -> Batch:
        """Pad rows of token ids."""
        return pad(rows, self._pad_id, side, self.device)

    def decode(self, response: Sequence[int]) -> str:
        """Turn response tokens into text, special ones left out but for those that bound a thought."""
        special = self._special
        if not any(special.get(i) for i in response):
            return str(self.tokenizer.decode(list(response), skip_special_tokens=True)).strip()
        return str(self.tokenizer.decode([i for i in response if special.get(i, True)])).strip()

    @cached_property
    def _special(self) -> dict[int, bool]:
        """Special tokens, and whether each bounds a thought: asked once, for a tokenizer lists them anew each time."""
        added = self.tokenizer.added_tokens_decoder
        return {i: is_mark(str(token)) for i, token in added.items() if token.special}

    # -- capturing and editing -----------------------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the surrounding blocks."""
        return tuple(self._edits)

    @property
    def processors(self) -> tuple[LogitsProcessor, ...]:
        """What changes the next token's scores in the surrounding blocks."""
        return tuple(self._processors)

    @contextmanager
    def editing(self, edits: Sequence[Edit], processors: Sequence[LogitsProcessor] = ()) -> Iterator[None]:
        """Apply edits to every forward pass this object makes inside the block, in the order given where they meet.

        Calls of `self.model` itself are not edited: how they would be is the backend's business.

        Args:
            processors: change the scores of the next token while decoding, before one is drawn.
        """
        for edit in edits:
            if not 0 <= edit.layer < self.n_layers:
                raise UserError(f"layer {edit.layer} does not exist: {self.name} has layers 0 to {self.n_layers - 1}")
        self._edits, self._processors = [*self._edits, *edits], [*self._processors, *processors]
        try:
            yield
        finally:  # another thread's block may have begun inside this one and still be open: only one's own are removed
            self._edits, self._processors = _without(self._edits, edits), _without(self._processors, processors)

    def capture(
        self,
        batch: Batch,
        site: Site,
        layers: Sequence[int],
        keep: Callable[[int, Stream], None],
        past_key_values: Any = None,
    ) -> None:
        """Run the prompts and hand each wanted layer's stream to `keep(layer, stream)`.

        Neither the language-model head nor any layer after the last one wanted is run.

        Args:
            past_key_values: of a prefix, one copy a row; `batch` then holds what follows it, padded on the right, and
                so does the stream.
        """

        def look(layer: int) -> Edit:
            def function(stream: Tensor, _pass: Pass) -> Tensor:
                keep(layer, stream)
                if layer == max(layers):
                    raise _LastLayerCaptured
                return stream

            return Edit(site, layer, function)

        with (
            self.editing([look(layer) for layer in sorted(layers)]),
            torch.inference_mode(),
            suppress(_LastLayerCaptured),
        ):
            self.run(self.decoder, batch, **({} if past_key_values is None else {"past_key_values": past_key_values}))

    # -- outputs -------------------------------------------------------------------------------------------------------

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
        """Decode greedily, whatever the model's own generation_config says; return response tokens, end excluded.

        Args:
            num_beams: above 1, the likeliest whole response that so many beams find.
            use_cache: False runs all tokens again at every step, which gives the same and is slow.
            watch: is handed each step's tokens, one a row, as soon as they are chosen.

        Raises:
            UserError: beams are to be watched; they know what they say only at the end.
        """
        decoding = Decoding(max_new_tokens, min_new_tokens, num_beams, use_cache)
        return [cut_at_end(response, self.eos_ids) for response in self._decode(batch, decoding, watch=watch)]

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
        """Draw one response a row; the same seed gives the same one, whatever else is in the batch.

        Known limit: the batch changes floating-point sums a little, and with them, rarely, a token drawn at an edge.

        Args:
            seeds: one a row, not negative; rows of one prompt with different seeds are independent samples.
            temperature: divides the logits before a token is drawn; 0 takes the likeliest. For all rows, or one a row.
            top_p: tokens are drawn from the fewest that together are at least so probable (arXiv 1904.09751); likewise.
            watch: as for `generate`.

        Raises:
            UserError: temperature or top_p is out of range.
        """
        drawing = TokenSampler(seeds, max_new_tokens, temperature, top_p)
        responses = self._decode(batch, Decoding(max_new_tokens), [drawing], watch)  # greedy: it leaves one token
        return drawing.sampled(responses, self.eos_ids)

    def _decode(
        self,
        batch: Batch,
        decoding: Decoding,
        processors: Sequence[LogitsProcessor] = (),
        watch: Watch | None = None,
    ) -> list[list[int]]:
        """Return what follows the prompts, up to the longest response; what follows an end in a row is filled up."""
        if watch is not None and decoding.num_beams > 1:
            raise UserError("beam search settles what it says only at the end: watch greedy decoding, or use one beam")
        config = decoding.config(self.eos_ids, self._pad_id)  # some ends are known to the model's own settings only
        with without_own_config(self.model):
            out = self._call(
                lambda: self.model.generate(
                    batch.tokens,
                    attention_mask=batch.attention_mask,
                    generation_config=config,
                    logits_processor=LogitsProcessorList([*self._processors, *processors]),
                    streamer=None if watch is None else StepStreamer(watch),
                ),
                batch.prompt_length,
            )
        responses: list[list[int]] = out[:, batch.tokens.shape[1] :].tolist()
        return responses

    def run(self, module: nn.Module, batch: Batch, **extra: Any) -> Any:
        """Make one forward pass of the model, or of its decoder alone, under the edits of the surrounding blocks."""
        if batch.side == "left":
            extra = {"attention_mask": batch.attention_mask, "position_ids": batch.position_ids} | extra
        extra = {"use_cache": "past_key_values" in extra} | extra
        return self._call(lambda: module(input_ids=batch.tokens, **extra), batch.prompt_length)

    def _call(self, call: Callable[[], T], prompt_length: int) -> T:
        name = f"{self.name}: {self.architecture}"
        return run_edited(self._backend, self.decoder, call, self._edits, prompt_length, name)


class _LastLayerCaptured(Exception):  # noqa: N818 - no error
    """Stops the forward pass after the last captured layer."""


def _without(items: list[T], gone: Sequence[T]) -> list[T]:
    """Return a list without the last occurrence of each of some of its items."""
    left = list(items)
    for item in reversed(gone):
        last = max(i for i, other in enumerate(left) if other is item)
        del left[last]
    return left
