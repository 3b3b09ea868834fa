"""Backends: three ways to edit the residual stream of a model of any architecture; they agree to float tolerance.

`hooks` are PyTorch hooks that never write in place. `nnsight` assigns in a trace around the call; it warns where its
loop over steps ends. `transformer_lens` uses a TransformerBridge without compatibility mode, which folds norms. No
model family is treated by name: one short pass with hooks finds the module of a block that produces `resid_mid`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.backoff import widened
from extract.errors import UserError, in_one_line
from extract.model.edit import SITES, Edit, Pass, Stream
from extract.model.loading_options import BackendName
from extract.model.read_state import CACHE, KEYS, state_of
from extract.model.weights import input_device

T = TypeVar("T")
Apply = Callable[[Edit, Stream], Stream]  # an edit's function in the current forward pass
STREAM_DIMENSIONS = 3  # row, token, d_model
Keywords = dict[str, Any]  # the keyword arguments of a module's call


@dataclass(frozen=True)
class FirstHalf:
    """The module of a block whose output, times `scale`, plus the block's input is `resid_mid`."""

    module: nn.Module
    scale: float  # 1, except in architectures with a residual multiplier (Granite)

    def edited(self, before: Stream, output: Stream, apply: Callable[[Stream], Stream]) -> Stream:
        """Return the module's output that turns `resid_mid` into `apply(resid_mid)`; the same tensor if unchanged.

        Changing the input of the MLP's norm would not change the residual branch, so the added output is changed.
        """
        mid = before + (output if self.scale == 1 else self.scale * output)
        changed = apply(mid)
        return output if changed is mid else output + (changed - mid) / self.scale


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the transformer blocks: the only list of the text decoder of that length; UserError if there is none."""
    wanted = model.config.get_text_config().num_hidden_layers
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    within = decoder if isinstance(decoder, nn.Module) else model.base_model
    stacks = [m for m in within.modules() if isinstance(m, nn.ModuleList) and len(m) == wanted]
    if len(stacks) != 1:
        raise UserError(
            f"{type(model).__name__}: expected one list of {wanted} transformer blocks, found {len(stacks)}; "
            "this architecture is not supported by the hooks backend"
        )
    return stacks[0]


def stream_out(value: Any) -> Any:
    """Return the stream from a module's output; some architectures and versions return a tuple (stream, …)."""
    return value[0] if isinstance(value, tuple) else value


def stream_in(args: tuple[Any, ...], kwargs: Keywords) -> Any:
    """Return the stream that a module was called with, as a positional or keyword argument."""
    return args[0] if args else kwargs.get("hidden_states")


def first_halves(model: PreTrainedModel, layers: Sequence[nn.Module], backend: str) -> list[FirstHalf]:
    """Find in every block the module that produces `resid_mid`; UserError where attention and MLP run in parallel."""
    halves: dict[int, FirstHalf | None] = {}
    handles = [handle for i, layer in enumerate(layers) for handle in _watch(layer, i, halves)]
    try:
        _short_pass(model)
    finally:
        for handle in handles:
            handle.remove()
    for i in range(len(layers)):
        if halves.get(i) is None:
            raise UserError(
                f"the {backend} backend finds no resid_mid on {type(model).__name__}: attention and MLP of layer {i} "
                "do not follow each other on the residual stream; use resid_pre or resid_post"
            )
    return [half for _, half in sorted(halves.items()) if half is not None]


@torch.inference_mode()
def _short_pass(model: PreTrainedModel) -> None:
    model.base_model(input_ids=torch.tensor([[1, 2, 3, 4]], device=input_device(model)), use_cache=False)


def _watch(layer: nn.Module, index: int, halves: dict[int, FirstHalf | None]) -> list[Any]:
    """Record the outputs of a block's modules until one module's input is the block's input plus one of them."""
    before: list[Tensor] = []
    outputs: list[tuple[nn.Module, Tensor]] = []

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        before[:] = [stream_in(args, kwargs)]
        outputs.clear()
        halves[index] = None

    def check_input(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        stream = stream_in(args, kwargs)
        if halves[index] is None and isinstance(stream, Tensor) and stream.shape == before[0].shape:
            halves[index] = _made_by(stream, before[0], outputs)

    def record_output(module: nn.Module, _args: Any, value: Any) -> None:
        output = stream_out(value)
        if isinstance(output, Tensor) and output.shape == before[0].shape:
            outputs.append((module, output))

    handles = [layer.register_forward_pre_hook(enter, with_kwargs=True)]
    for part in layer.modules():
        if part is not layer:
            handles += [
                part.register_forward_pre_hook(check_input, with_kwargs=True),
                part.register_forward_hook(record_output),
            ]
    return handles


def _made_by(stream: Tensor, before: Tensor, outputs: Sequence[tuple[nn.Module, Tensor]]) -> FirstHalf | None:
    """Return the module whose output was added: exactly if one is, else the one that a scale explains.

    Exactly first: in bfloat16 a massive activation (arXiv 2402.17762) rounds away what is added to it.
    """
    for module, output in reversed(outputs):  # of nested modules with equal output the outermost finishes last
        if output.any() and torch.equal(before + output, stream):
            return FirstHalf(module, 1.0)
    added = widened(stream) - widened(before)
    if not added.any():
        return None
    tolerance = 1e-5 if stream.dtype == torch.float32 else 2e-2
    for module, stream_added in reversed(outputs):
        if torch.equal(stream_added, stream):  # as what the attention reads is the norm's output
            continue
        output = widened(stream_added)
        scale = float((added * output).sum() / (output * output).sum().clamp(min=1e-30))
        if abs(scale) > 1e-3 and (added - scale * output).norm() <= tolerance * added.norm():
            return FirstHalf(module, 1.0 if abs(scale - 1) < tolerance else scale)
    return None


def run_edited(
    backend: HooksBackend | TransformerLensBackend,
    decoder: nn.Module,
    call: Callable[[], T],
    edits: Sequence[Edit],
    prompt_length: int,
    name: str,
    n_read: int = 0,
) -> T:
    """Return `call()` with edits applied in every forward pass; those at one site and layer keep their order.

    `n_read` tokens were read before its first pass; needed where the state of those does not tell.
    """
    if not edits:
        return call()
    running: list[Pass] = []  # the current pass; empty until the decoder is called

    def record_pass(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        nonlocal n_read
        tokens, state = args[0] if args else kwargs["input_ids"], state_of(kwargs)
        running[:] = [Pass(_start(state, n_read), int(tokens.shape[1]), prompt_length)]
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] > running[0].start + running[0].length:
            raise UserError(
                f"{name} goes on from what it has read in a way that this version does not know, so the tokens of a "
                "pass are unknown to edits; install an earlier version of transformers"
            )
        if state is not None or kwargs.get("use_cache"):
            n_read = running[0].start + running[0].length

    ordered = sorted(edits, key=lambda edit: (edit.layer, SITES.index(edit.site)))

    def apply(edit: Edit, stream: Stream) -> Stream:
        if not running:
            raise UserError(
                f"{name} calls its blocks without its decoder, so the tokens of a pass are unknown to "
                "edits; use another model"
            )
        if stream.ndim != STREAM_DIMENSIONS:
            raise UserError(
                f"the blocks of {name} pass on a stream of shape {tuple(stream.shape)}, not (row, token, "
                "d_model), as models with several residual streams do; use another model"
            )
        return edit.function(stream, running[0])

    handle = decoder.register_forward_pre_hook(record_pass, with_kwargs=True)
    try:
        return backend.run(call, ordered, apply)
    finally:
        handle.remove()


def _start(state: Any, so_far: int) -> int:
    """Return how many tokens, padding included, were read before a pass: in this call, or by the state it goes on from.

    Recurrent layers do not count them. A state that begins with one may say 0 (MiniMax); of recurrent layers alone, it
    raises ValueError where `so_far` does not tell either.
    """
    if state is None:
        return 0
    try:
        return max(so_far, int(state.get_seq_length()))
    except ValueError:
        if so_far or not state.has_previous_state():
            return so_far
        raise


class HooksBackend:
    """Runs edits as PyTorch hooks; the fastest backend and the default."""

    name: BackendName = "hooks"

    def __init__(self, model: PreTrainedModel, _tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self._layers = decoder_layers(model)

    def run(self, call: Callable[[], T], edits: Sequence[Edit], apply: Apply) -> T:
        """Return `call()` with edits applied in every forward pass; they are in its order."""
        if any(edit.site == "resid_mid" for edit in edits):
            _ = self._halves  # found by a separate forward pass, in which no edit may run
        handles: list[Any] = []
        try:
            for edit in edits:  # one by one: if one cannot be attached, the others are removed
                handles += self._attach(edit, partial(apply, edit))
            return call()
        finally:
            for handle in handles:
                handle.remove()

    @cached_property
    def _halves(self) -> list[FirstHalf]:
        return first_halves(self.model, self._layers, self.name)

    def _attach(self, edit: Edit, apply: Callable[[Stream], Stream]) -> list[Any]:
        layer = self._layers[edit.layer]
        match edit.site:
            case "resid_pre":
                return [layer.register_forward_pre_hook(_before(apply), with_kwargs=True)]
            case "resid_post":
                return [layer.register_forward_hook(_after(apply))]
            case "resid_mid":
                half, block_input = self._halves[edit.layer], list[Stream]()

                def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
                    block_input[:] = [stream_in(args, kwargs)]

                def add(output: Stream) -> Stream:
                    return half.edited(block_input[0], output, apply)

                return [
                    layer.register_forward_pre_hook(keep, with_kwargs=True),
                    half.module.register_forward_hook(_after(add)),
                ]


def _before(apply: Callable[[Stream], Stream]) -> Callable[..., Any]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> Any:
        changed = apply(stream_in(args, kwargs))
        return ((changed, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": changed})

    return hook


def _after(apply: Callable[[Stream], Stream]) -> Callable[..., Any]:
    return lambda _module, _args, out: _replaced(out, apply(stream_out(out)))


def _replaced(out: Any, stream: Stream) -> Any:
    return (stream, *out[1:]) if isinstance(out, tuple) else stream


class NNsightBackend(HooksBackend):
    """Runs edits as assignments inside a trace."""

    name: BackendName = "nnsight"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        import nnsight

        super().__init__(model, tokenizer)
        self._names = {module: name for name, module in model.named_modules()}
        self._root = nnsight.NNsight(model)

    def run(self, call: Callable[[], T], edits: Sequence[Edit], apply: Apply) -> T:
        places = []
        for edit in edits:
            layer = self._root.get(self._names[self._layers[edit.layer]])
            half = edit.site == "resid_mid" and self._root.get(self._names[self._halves[edit.layer].module])
            places.append((edit, layer, half, partial(apply, edit)))
        results: list[T] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with self._root.trace(0, fn=lambda _: results.append(call())) as tracer:
                for _step in tracer.iter[:]:
                    for place in places:
                        self._apply(*place)
        return results[0]

    def _apply(self, edit: Edit, layer: Any, half: Any, apply: Callable[[Any], Any]) -> None:
        match edit.site:
            case "resid_pre":
                stream = layer.input
                changed = apply(stream)
                if changed is not stream:
                    layer.input = changed
            case "resid_post":
                _set_output(layer, apply)
            case "resid_mid":
                before = layer.input
                _set_output(half, lambda output: self._halves[edit.layer].edited(before, output, apply))


def _set_output(envoy: Any, apply: Callable[[Any], Any]) -> None:
    output = envoy.output
    changed = apply(stream_out(output))
    if changed is not stream_out(output):
        envoy.output = _replaced(output, changed)


class TransformerLensBackend:
    """Runs edits as hooks of a TransformerBridge, which replaces the model's blocks for good."""

    name: BackendName = "transformer_lens"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        from transformer_lens.model_bridge import TransformerBridge
        from transformer_lens.model_bridge.generalized_components import AttentionBridge, GatedDeltaNetBridge
        from transformer_lens.model_bridge.sources.transformers import source

        self._architecture = type(model).__name__
        model.config.architectures = [self._architecture]  # the bridge chooses its adapter by this name
        try:
            # for a model that sees it opens the processor of images; if that lacks torchvision, pip is called, and its
            # build replaces torch in the environment of whoever runs this
            with warnings.catch_warnings(), patch.object(source, "load_modality_processor"):
                warnings.simplefilter("ignore")
                self._bridge = TransformerBridge.boot_transformers(
                    model.config.name_or_path or self._architecture,
                    hf_model=model,
                    tokenizer=tokenizer,
                    dtype=model.dtype,
                    device=model.device,
                )
                self.model: PreTrainedModel = self._bridge.original_model
                for part in self.model.modules():
                    if isinstance(part, (AttentionBridge, GatedDeltaNetBridge)):
                        key = KEYS[isinstance(part, GatedDeltaNetBridge)]
                        part.register_forward_pre_hook(partial(_cache_as, key), with_kwargs=True)
                _short_pass(self.model)  # it may only then be found to lack a part (GraniteMoeHybrid)
        except Exception as error:  # each adapter raises its own errors
            raise UserError(
                f"the transformer_lens backend does not support {self._architecture} ({in_one_line(error)}); "
                "use backend hooks"
            ) from error

    def run(self, call: Callable[[], T], edits: Sequence[Edit], apply: Apply) -> T:
        points = [point for edit in edits for point in self._points(edit, partial(apply, edit))]
        with self._bridge.hooks(fwd_hooks=points):
            return call()

    def _points(self, edit: Edit, apply: Callable[[Stream], Stream]) -> list[tuple[str, Callable[..., Any]]]:
        block = f"blocks.{edit.layer}"
        name = f"{block}.hook_{edit.site}"
        if name not in self._bridge.hook_dict:
            raise UserError(
                f"the transformer_lens backend has no {edit.site} on {self._architecture}; use resid_pre or resid_post"
            )
        if edit.site != "resid_mid":
            return [(name, lambda stream, hook: apply(stream))]
        block_input: list[Tensor] = []

        def keep(stream: Tensor, hook: Any) -> None:
            block_input[:] = [stream]

        def add(output: Tensor, hook: Any) -> Tensor:
            return FirstHalf(nn.Identity(), 1.0).edited(block_input[0], output, apply)

        return [(f"{block}.hook_in", keep), (f"{block}.hook_attn_out", add)]


def _cache_as(key: str, _module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> tuple[Any, Keywords]:
    """Give a part of TransformerLens the cache by the name that it reads; transformers 5.24 has another."""
    return args, {key if name == CACHE else name: given for name, given in kwargs.items()}


BACKENDS: dict[BackendName, type[HooksBackend | TransformerLensBackend]] = {
    backend.name: backend for backend in (HooksBackend, NNsightBackend, TransformerLensBackend)
}
