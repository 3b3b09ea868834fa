"""The `hooks` backend: PyTorch hooks on Hugging Face transformers. They never write in place and are always removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedModel

from extract.model.backends import BackendName, PlacedEdit, in_forward_order
from extract.model.blocks import FirstHalf, Keywords, decoder_layers, edited_half, first_halves, stream_in, stream_out

T = TypeVar("T")


class HooksBackend:
    """Runs edits as PyTorch hooks; the fastest backend and the default."""

    name: BackendName = "hooks"

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._layers = decoder_layers(model)

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        if any(edit.site == "resid_mid" for edit in edits):
            _ = self._halves  # found by a separate forward pass, in which no edit may run
        handles: list[Any] = []
        try:
            for edit in in_forward_order(edits):  # one by one: if one cannot be attached, the others are removed
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
                half, block_input = self._halves[edit.layer], _BlockInput()
                return [
                    layer.register_forward_pre_hook(block_input, with_kwargs=True),
                    half.module.register_forward_hook(
                        _after(lambda output: edited_half(half, block_input.stream, output, edit.apply))
                    ),
                ]


class _BlockInput:
    """Stores the stream that a block was last called with, while its first half runs."""

    stream: Tensor

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        self.stream = stream_in(args, kwargs)


def _before(edit: PlacedEdit) -> Callable[..., Any]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> Any:
        changed = edit.apply(stream_in(args, kwargs))
        if args:
            return (changed, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": changed}

    return hook


def _after(apply: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def hook(_module: nn.Module, _args: Any, out: Any) -> Any:
        changed = apply(stream_out(out))
        return (changed, *out[1:]) if isinstance(out, tuple) else changed

    return hook
