"""Transformer blocks of any architecture, and the module in each block that produces `resid_mid`.

No model family is treated by name: one short forward pass with hooks finds the module whose output, added to the
block's input, is `resid_mid`: the attention, or the norm after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from extract.errors import UserError
from extract.model.edit import Stream
from extract.model.weights import input_device

Keywords = dict[str, Any]  # the keyword arguments of a module's call


@dataclass(frozen=True)
class FirstHalf:
    """The module of a block whose output, times `scale`, plus the block's input is `resid_mid`."""

    module: nn.Module
    scale: float  # 1, except in architectures with a residual multiplier (Granite)


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
        with torch.inference_mode():
            model.base_model(input_ids=torch.tensor([[1, 2, 3, 4]], device=input_device(model)), use_cache=False)
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
    added = stream.double() - before.double()
    if not added.any():
        return None
    tolerance = 1e-5 if stream.dtype == torch.float32 else 2e-2
    for module, stream_added in reversed(outputs):
        if torch.equal(stream_added, stream):  # as what the attention reads is the norm's output
            continue
        output = stream_added.double()
        scale = float((added * output).sum() / (output * output).sum().clamp(min=1e-30))
        if abs(scale) > 1e-3 and (added - scale * output).norm() <= tolerance * added.norm():
            return FirstHalf(module, 1.0 if abs(scale - 1) < tolerance else scale)
    return None


def edited_half(half: FirstHalf, before: Stream, output: Stream, apply: Callable[[Stream], Stream]) -> Stream:
    """Return the first half's output that turns `resid_mid` into `apply(resid_mid)`; the same tensor if unchanged.

    Changing the input of the MLP's norm would not change the residual branch, so the added output is changed.
    """
    mid = before + (output if half.scale == 1 else half.scale * output)
    changed = apply(mid)
    return output if changed is mid else output + (changed - mid) / half.scale
