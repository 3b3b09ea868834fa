"""Transformer blocks of any architecture, and the part of each block that makes `resid_mid`.

Nothing here knows a model family by name. Where a block adds attention and MLP one after the other, exactly one of its
parts turns the block's input into the stream between them (`resid_mid`): the attention, or the norm behind it in
architectures that norm what they add. It is found by watching one short forward pass.
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

Keywords = dict[str, Any]  # the named arguments of a module's call


@dataclass(frozen=True)
class FirstHalf:
    """The part of a block whose output, times `scale`, added to the block's input is `resid_mid`."""

    module: nn.Module
    scale: float  # 1 but for architectures with a residual multiplier (Granite)


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


def stream_out(value: Any) -> Any:
    """Return the stream out of a module's output: some architectures and versions return (stream, …)."""
    return value[0] if isinstance(value, tuple) else value


def stream_in(args: tuple[Any, ...], kwargs: Keywords) -> Any:
    """Return the stream a module was called with, given in place or by name."""
    return args[0] if args else kwargs.get("hidden_states")


def first_halves(model: PreTrainedModel, layers: Sequence[nn.Module], backend: str) -> list[FirstHalf]:
    """Find in every block what makes `resid_mid` of its input.

    Raises:
        UserError: a block has no such place, as where attention and MLP work side by side on the same input.
    """
    found: dict[int, FirstHalf | None] = {}
    handles = [handle for i, layer in enumerate(layers) for handle in _watch(layer, i, found)]
    try:
        with torch.inference_mode():
            model.base_model(input_ids=torch.tensor([[1, 2, 3, 4]], device=model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    for i in range(len(layers)):
        if found.get(i) is None:
            raise UserError(
                f"the {backend} backend finds no resid_mid on {type(model).__name__}: attention and MLP of layer {i} "
                "do not follow each other on the residual stream; use resid_pre or resid_post"
            )
    return [half for _, half in sorted(found.items()) if half is not None]


def _watch(layer: nn.Module, index: int, found: dict[int, FirstHalf | None]) -> list[Any]:
    """Follow one block's call: every part's output so far, until some part reads the block's input plus one of them."""
    before: list[Tensor] = []
    outputs: list[tuple[nn.Module, Tensor]] = []

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        before[:] = [stream_in(args, kwargs)]
        outputs.clear()
        found[index] = None

    def part_reads(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        stream = stream_in(args, kwargs)
        if found[index] is None and isinstance(stream, Tensor) and stream.shape == before[0].shape:
            found[index] = _made_by(stream, before[0], outputs)

    def part_says(module: nn.Module, _args: Any, output: Any) -> None:
        said = stream_out(output)
        if isinstance(said, Tensor) and said.shape == before[0].shape:
            outputs.append((module, said))

    handles = [layer.register_forward_pre_hook(enter, with_kwargs=True)]
    for part in layer.modules():
        if part is not layer:
            handles += [part.register_forward_pre_hook(part_reads, with_kwargs=True),
                        part.register_forward_hook(part_says)]  # fmt: skip
    return handles


def _made_by(stream: Tensor, before: Tensor, outputs: Sequence[tuple[nn.Module, Tensor]]) -> FirstHalf | None:
    added = stream.double() - before.double()
    if not added.any():
        return None
    tolerance = 1e-5 if stream.dtype == torch.float32 else 2e-2
    for module, output in reversed(outputs):  # the outermost of those that say the same finishes last
        said = output.double()
        scale = float((added * said).sum() / (said * said).sum().clamp(min=1e-30))
        if abs(scale) > 1e-3 and (added - scale * said).norm() <= tolerance * added.norm():
            return FirstHalf(module, 1.0 if abs(scale - 1) < tolerance else scale)
    return None


def edited_half(half: FirstHalf, before: Stream, said: Stream, apply: Callable[[Stream], Stream]) -> Stream:
    """Return what the first half must say for `resid_mid` to become `apply(resid_mid)`; the same tensor if unchanged.

    Changing what the MLP's norm reads would leave the residual branch as it was, so what is added is changed.
    """
    mid = before + (said if half.scale == 1 else half.scale * said)
    changed = apply(mid)
    return said if changed is mid else said + (changed - mid) / half.scale
