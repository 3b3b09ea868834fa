"""Backends: three ways to edit the residual stream of a running model; their results agree to float tolerance.

`hooks` are PyTorch hooks on transformers, the fast path and the default; they never write in place. `nnsight` assigns
in a trace around the call, whose loop over steps ends when there are no more (the warning of that is for traces written
by hand). `transformer_lens` uses hook points of a TransformerBridge on the unchanged weights, without compatibility
mode, which folds norms; it replaces the model's blocks, with eager attention.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_args

from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.errors import UserError, in_one_line
from extract.model.blocks import FirstHalf, Keywords, decoder_layers, edited_half, first_halves, stream_in, stream_out
from extract.model.edit import SITES, Edit, Pass, Site, Stream
from extract.model.loading_options import BackendName

BACKENDS: tuple[str, ...] = get_args(BackendName)
T = TypeVar("T")
STREAM_DIMENSIONS = 3  # row, token, d_model


@dataclass(frozen=True)
class PlacedEdit:
    """A function of the stream at one site and layer, bound to the current forward pass."""

    site: Site
    layer: int
    apply: Callable[[Stream], Stream]


def open_backend(
    name: BackendName, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> HooksBackend | TransformerLensBackend:
    """Open a backend on a loaded model. `transformer_lens` replaces the model's blocks for good."""
    if name == "transformer_lens":
        return TransformerLensBackend(model, tokenizer)
    return HooksBackend(model) if name == "hooks" else NNsightBackend(model)


def run_edited(
    backend: HooksBackend | TransformerLensBackend,
    decoder: nn.Module,
    call: Callable[[], T],
    edits: Sequence[Edit],
    prompt_length: int,
    name: str,
) -> T:
    """Return `call()` with edits applied in every forward pass; those at one site and layer keep their order."""
    if not edits:
        return call()
    running: list[Pass] = []  # the current pass; empty until the decoder is called

    def record_pass(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        tokens, cache = args[0] if args else kwargs["input_ids"], kwargs.get("past_key_values")
        start = int(cache.get_seq_length()) if cache is not None else 0
        running[:] = [Pass(start, int(tokens.shape[1]), prompt_length)]

    ordered = sorted(edits, key=lambda edit: (edit.layer, SITES.index(edit.site)))
    handle = decoder.register_forward_pre_hook(record_pass, with_kwargs=True)
    try:
        return backend.run(call, [_placed(edit, running, name) for edit in ordered])
    finally:
        handle.remove()


def _placed(edit: Edit, running: list[Pass], name: str) -> PlacedEdit:
    def apply(stream: Stream) -> Stream:
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

    return PlacedEdit(edit.site, edit.layer, apply)


class HooksBackend:
    """Runs edits as PyTorch hooks; the fastest backend and the default."""

    name: BackendName = "hooks"

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._layers = decoder_layers(model)

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        """Return `call()` with edits applied in every forward pass; they are in its order."""
        if any(edit.site == "resid_mid" for edit in edits):
            _ = self._halves  # found by a separate forward pass, in which no edit may run
        handles: list[Any] = []
        try:
            for edit in edits:  # one by one: if one cannot be attached, the others are removed
                handles += self._attach(edit)
            return call()
        finally:
            for handle in handles:
                handle.remove()

    @cached_property
    def _halves(self) -> list[FirstHalf]:
        return first_halves(self.model, self._layers, self.name)

    def _attach(self, edit: PlacedEdit) -> list[Any]:
        layer = self._layers[edit.layer]
        match edit.site:
            case "resid_pre":
                return [layer.register_forward_pre_hook(_before(edit), with_kwargs=True)]
            case "resid_post":
                return [layer.register_forward_hook(_after(edit.apply))]
            case "resid_mid":
                half, block_input = self._halves[edit.layer], list[Stream]()

                def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
                    block_input[:] = [stream_in(args, kwargs)]

                def add(output: Stream) -> Stream:
                    return edited_half(half, block_input[0], output, edit.apply)

                return [
                    layer.register_forward_pre_hook(keep, with_kwargs=True),
                    half.module.register_forward_hook(_after(add)),
                ]


def _before(edit: PlacedEdit) -> Callable[..., Any]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> Any:
        changed = edit.apply(stream_in(args, kwargs))
        return ((changed, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": changed})

    return hook


def _after(apply: Callable[[Stream], Stream]) -> Callable[..., Any]:
    return lambda _module, _args, out: _replaced(out, apply(stream_out(out)))


def _replaced(out: Any, stream: Stream) -> Any:
    return (stream, *out[1:]) if isinstance(out, tuple) else stream


class NNsightBackend(HooksBackend):
    """Runs edits as assignments inside a trace."""

    name: BackendName = "nnsight"

    def __init__(self, model: PreTrainedModel) -> None:
        import nnsight

        super().__init__(model)
        self._names = {module: name for name, module in model.named_modules()}
        self._root = nnsight.NNsight(model)

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        places = []
        for edit in edits:
            layer = self._root.get(self._names[self._layers[edit.layer]])
            half = edit.site == "resid_mid" and self._root.get(self._names[self._halves[edit.layer].module])
            places.append((edit, layer, half))
        results: list[T] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with self._root.trace(0, fn=lambda _: results.append(call())) as tracer:
                for _step in tracer.iter[:]:
                    for edit, layer, half in places:
                        self._apply(edit, layer, half)
        return results[0]

    def _apply(self, edit: PlacedEdit, layer: Any, half: Any) -> None:
        match edit.site:
            case "resid_pre":
                stream = layer.input
                changed = edit.apply(stream)
                if changed is not stream:
                    layer.input = changed
            case "resid_post":
                _set_output(layer, edit.apply)
            case "resid_mid":
                before = layer.input
                _set_output(half, lambda output: edited_half(self._halves[edit.layer], before, output, edit.apply))


def _set_output(envoy: Any, apply: Callable[[Any], Any]) -> None:
    output = envoy.output
    changed = apply(stream_out(output))
    if changed is not stream_out(output):
        envoy.output = _replaced(output, changed)


class TransformerLensBackend:
    """Runs edits as hooks of a TransformerBridge."""

    name: BackendName = "transformer_lens"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        self._architecture = type(model).__name__
        model.config.architectures = [self._architecture]  # the bridge chooses its adapter by this name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._bridge = TransformerBridge.boot_transformers(
                    model.config.name_or_path or self._architecture,
                    hf_model=model,
                    tokenizer=tokenizer,
                    dtype=model.dtype,
                    device=model.device,
                )
        except Exception as error:  # each adapter raises its own errors
            raise UserError(
                f"the transformer_lens backend does not support {self._architecture} ({in_one_line(error)}); "
                "use backend hooks"
            ) from error
        self.model: PreTrainedModel = self._bridge.original_model

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        with self._bridge.hooks(fwd_hooks=[point for edit in edits for point in self._points(edit)]):
            return call()

    def _points(self, edit: PlacedEdit) -> list[tuple[str, Callable[..., Any]]]:
        block = f"blocks.{edit.layer}"
        name = f"{block}.hook_{edit.site}"
        if name not in self._bridge.hook_dict:
            raise UserError(
                f"the transformer_lens backend has no {edit.site} on {self._architecture}; use resid_pre or resid_post"
            )
        if edit.site != "resid_mid":
            return [(name, lambda stream, hook: edit.apply(stream))]
        block_input: list[Tensor] = []

        def keep(stream: Tensor, hook: Any) -> None:
            block_input[:] = [stream]

        def add(output: Tensor, hook: Any) -> Tensor:
            return edited_half(FirstHalf(nn.Identity(), 1.0), block_input[0], output, edit.apply)

        return [(f"{block}.hook_in", keep), (f"{block}.hook_attn_out", add)]
