"""An open-weight chat model behind one interface: encode, capture, edit, generate.

This is the `hooks` backend: Hugging Face transformers with PyTorch hooks. Hooks never write in place and are removed
whatever happens, so the model is bitwise the same after use. Left padding throughout, with explicit position ids.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from extract.chat import Rendered
from extract.errors import UserError

Site = Literal["resid_pre", "resid_post"]
SITES: tuple[str, ...] = get_args(Site)
Scope = Literal["last_prompt", "last_on", "all"]


@dataclass(frozen=True)
class Batch:
    """Left-padded prompts."""

    tokens: Int[Tensor, "batch time"]
    attention_mask: Int[Tensor, "batch time"]
    prompt_length: int  # tokens up to and with the last prompt token, padding included

    @property
    def position_ids(self) -> Int[Tensor, "batch time"]:
        return (self.attention_mask.cumsum(dim=1) - 1).clamp(min=0)

    @property
    def n_pad(self) -> Int[Tensor, " batch"]:
        return self.tokens.shape[1] - self.attention_mask.sum(dim=1)


@dataclass(frozen=True)
class Remembered:
    """A batch of prompts with the keys and values of all their tokens but the last."""

    batch: Batch
    cache: Any


@dataclass(frozen=True)
class Pass:
    """What an edit may know about the forward pass it runs in."""

    start: int  # index of the first token of this pass, padding included; 0 at prefill
    length: int  # tokens in this pass
    prompt_length: int
    attention_mask: Int[Tensor, "batch time"] | None

    @property
    def is_prefill(self) -> bool:
        """Whether this pass holds the last prompt token."""
        return self.start < self.prompt_length <= self.start + self.length

    def covers(self, scope: Scope, device: torch.device) -> Bool[Tensor, " time"]:
        """Say which tokens of this pass belong to a scope (padding is never read, so it may be covered)."""
        index = torch.arange(self.start, self.start + self.length, device=device)
        match scope:
            case "last_prompt":
                return index == self.prompt_length - 1
            case "last_on":
                return index >= self.prompt_length - 1
            case "all":
                return torch.ones_like(index, dtype=torch.bool)


@dataclass(frozen=True)
class Edit:
    """A function applied to the residual stream at one site and layer, during every forward pass.

    `function(stream, pass_)` takes (batch, time, d_model) and returns the same shape; it may also only look.
    """

    site: Site
    layer: int
    function: Callable[[Float[Tensor, "batch time d_model"], Pass], Float[Tensor, "batch time d_model"]]


class ChatModel:
    """A causal language model with a chat template."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, revision: str = ""
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.revision = revision
        self._decoder: nn.Module = model.base_model
        self.layers = decoder_layers(model)
        self.n_layers = len(self.layers)
        self.d_model = int(model.config.get_text_config().hidden_size)
        self._prompt_length = 0
        self._continues = False  # known to hold, once checked
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (self.eos_ids or [0])[0]

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

    # -- tokens ----------------------------------------------------------------------------------------------------

    def batch(self, rows: Sequence[Rendered]) -> Batch:
        """Left-pad prompts."""
        longest = max(len(row.token_ids) for row in rows)
        tokens = torch.full((len(rows), longest), self._pad_id)
        mask = torch.zeros_like(tokens)
        for i, row in enumerate(rows):
            tokens[i, -len(row.token_ids) :] = torch.tensor(row.token_ids)
            mask[i, -len(row.token_ids) :] = 1
        return Batch(tokens.to(self.device), mask.to(self.device), longest)

    # -- capturing and editing -------------------------------------------------------------------------------------

    def capture(self, batch: Batch, site: Site, layers: Sequence[int], keep: Callable[[int, Tensor], None]) -> None:
        """Run the prompts and hand each wanted layer's stream, (batch, time, d_model), to `keep(layer, stream)`.

        Neither the language-model head nor any layer after the last one wanted is run.
        """

        def look(layer: int) -> Edit:
            def function(stream: Tensor, _pass: Pass) -> Tensor:
                keep(layer, stream)
                if layer == max(layers):
                    raise _Enough
                return stream

            return Edit(site, layer, function)

        with self.editing([look(layer) for layer in sorted(layers)]), torch.inference_mode(), suppress(_Enough):
            self._run(self._decoder, batch)

    @contextmanager
    def editing(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Apply edits to every forward pass inside the block, in the order given where they share a place."""
        state: list[Pass] = []
        handles = [self._decoder.register_forward_pre_hook(self._announce(state), with_kwargs=True)]
        try:
            for edit in edits:  # one by one: if the second cannot be attached, the first must still come off
                handles.append(self._attach(edit, state))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _announce(self, state: list[Pass]) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tokens = args[0] if args else kwargs["input_ids"]
            cache, mask = kwargs.get("past_key_values"), kwargs.get("attention_mask")
            start = int(cache.get_seq_length()) if cache is not None else 0
            two_axes = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
            state[:] = [Pass(start, int(tokens.shape[1]), self._prompt_length, two_axes)]

        return hook

    def _attach(self, edit: Edit, state: list[Pass]) -> Any:
        if not 0 <= edit.layer < self.n_layers:
            raise UserError(f"layer {edit.layer} does not exist: {self.name} has layers 0 to {self.n_layers - 1}")
        layer = self.layers[edit.layer]
        match edit.site:
            case "resid_post":

                def after(_module: nn.Module, _args: Any, out: Any) -> Any:
                    if isinstance(out, tuple):  # some architectures and versions return (stream, …)
                        return (edit.function(out[0], state[0]), *out[1:])
                    return edit.function(out, state[0])

                return layer.register_forward_hook(after)
            case "resid_pre":

                def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                    if args:
                        return (edit.function(args[0], state[0]), *args[1:]), kwargs
                    return args, kwargs | {"hidden_states": edit.function(kwargs["hidden_states"], state[0])}

                return layer.register_forward_pre_hook(before, with_kwargs=True)

    def _run(self, module: nn.Module, batch: Batch, **extra: Any) -> Any:
        self._prompt_length = batch.prompt_length
        return module(
            input_ids=batch.tokens,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            **({"use_cache": False} | extra),
        )

    # -- outputs ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def remember(self, batch: Batch) -> Remembered:
        """Run all prompt tokens but the last and keep their keys and values, for many continuations of one batch.

        Right for edits of scope `last_prompt` or `last_on` only: those never touch the tokens remembered.

        Raises:
            UserError: the architecture's cache cannot be continued by several tokens (some recurrent ones cannot).
        """
        before = Batch(batch.tokens[:, :-1], batch.attention_mask[:, :-1], batch.prompt_length)
        cache = getattr(self._run(self._decoder, before, use_cache=True), "past_key_values", None)
        remembered = Remembered(batch, cache)
        if not self._continues:
            self._continues = cache is not None and self._continuation_holds(remembered)
        if not self._continues:
            raise UserError(f"{self.name}: {type(self.model).__name__} cannot go on from a remembered prompt, so its "
                            "onset scores cannot be computed; use an attention-only chat model")  # fmt: skip
        return remembered

    def _continuation_holds(self, remembered: Remembered) -> bool:
        """Compare three tokens more with a whole pass, once a model: a silent difference would be a wrong verdict."""
        batch = remembered.batch
        extra = batch.tokens[:1, -3:].expand(len(batch.tokens), -1)
        mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
        whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
        expected = self._run(self.model, whole, logits_to_keep=1).logits[:, -1].float().log_softmax(dim=-1)
        found = self.continued_log_probs(remembered, extra[0].tolist())[:, -1]
        likely = expected > -8
        return bool((found - expected)[likely].abs().max() < (0.05 if self.dtype == torch.float32 else 1.0))

    @torch.inference_mode()
    def continued_log_probs(
        self, remembered: Remembered, continuation: Sequence[int]
    ) -> Float[Tensor, "batch steps vocabulary"]:
        """Return the distributions after the last prompt token and after each continuation token, in float32."""
        batch, steps = remembered.batch, len(continuation) + 1
        self._prompt_length = batch.prompt_length
        suffix = torch.tensor([list(continuation)], dtype=torch.long, device=self.device).expand(len(batch.tokens), -1)
        mask = torch.cat([batch.attention_mask, torch.ones_like(suffix)], dim=1)
        logits = self.model(
            input_ids=torch.cat([batch.tokens[:, -1:], suffix], dim=1),
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1)[:, -steps:],
            past_key_values=copy.deepcopy(remembered.cache),
            use_cache=True,
        ).logits
        return logits.float().log_softmax(dim=-1)

    @torch.inference_mode()
    def generate(self, batch: Batch, max_new_tokens: int, min_new_tokens: int = 0) -> list[list[int]]:
        """Decode greedily, whatever the model's own generation_config says; return response tokens, end excluded."""
        self._prompt_length = batch.prompt_length
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_new_tokens,
            min_new_tokens=min_new_tokens,
            eos_token_id=self.eos_ids or None,
            pad_token_id=self._pad_id,
        )
        with self._without_own_generation_config():
            out = self.model.generate(batch.tokens, attention_mask=batch.attention_mask, generation_config=config)
        responses = out[:, batch.tokens.shape[1] :].tolist()
        return [_until(response, set(self.eos_ids)) for response in responses]

    @contextmanager
    def _without_own_generation_config(self) -> Iterator[None]:
        """Set the model's own aside: transformers fills what ours leaves open (repetition_penalty, …) from it."""
        own, self.model.generation_config = self.model.generation_config, GenerationConfig()
        try:
            yield
        finally:
            self.model.generation_config = own

    def decode(self, response: Sequence[int]) -> str:
        """Turn response tokens into text."""
        return str(self.tokenizer.decode(list(response), skip_special_tokens=True)).strip()

    def fingerprint(self) -> str:
        """Return a SHA-256 over every parameter's name, shape, dtype and about 256 evenly spaced values."""
        digest = hashlib.sha256()
        for name, parameter in self.model.state_dict().items():
            flat = parameter.detach().reshape(-1)
            sample = flat[:: max(1, flat.numel() // 256)].to("cpu", torch.float32)
            digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
            digest.update(sample.contiguous().numpy().tobytes())
        return digest.hexdigest()


class _Enough(Exception):  # noqa: N818 - no error: it ends a pass early
    """Everything wanted has been captured."""


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Find the transformer blocks: the one module list as long as the configuration says there are layers.

    Raises:
        UserError: there is none, or more than one.
    """
    wanted = model.config.get_text_config().num_hidden_layers
    found = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == wanted]
    if len(found) != 1:
        raise UserError(
            f"{type(model).__name__}: expected one list of {wanted} transformer blocks, found {len(found)}; "
            "this architecture is not supported by the hooks backend"
        )
    return found[0]


def _until(response: list[int], ends: set[int]) -> list[int]:
    for index, token in enumerate(response):
        if token in ends:
            return response[:index]
    return response
