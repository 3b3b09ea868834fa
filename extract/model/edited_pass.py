"""Forward passes with edits: each edit gets the token range of its pass, and the backend applies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from extract.errors import UserError
from extract.model.backends import Backend, PlacedEdit
from extract.model.blocks import Keywords
from extract.model.edit import Edit, Pass, Stream

T = TypeVar("T")
STREAM_DIMENSIONS = 3  # row, token, d_model


def run_edited(
    backend: Backend, decoder: nn.Module, call: Callable[[], T], edits: Sequence[Edit], prompt_length: int, name: str
) -> T:
    """Return `call()` with edits applied in every forward pass.

    Args:
        name: the model's name, for messages.

    Raises:
        UserError: the model calls its blocks without calling its decoder.
    """
    if not edits:
        return call()
    running: list[Pass] = []  # the current pass; empty until the decoder is called
    handle = decoder.register_forward_pre_hook(_record_pass(running, prompt_length), with_kwargs=True)
    try:
        return backend.run(call, [_placed(edit, running, name) for edit in edits])
    finally:
        handle.remove()


def _record_pass(running: list[Pass], prompt_length: int) -> Callable[..., None]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        tokens = args[0] if args else kwargs["input_ids"]
        cache = kwargs.get("past_key_values")
        start = int(cache.get_seq_length()) if cache is not None else 0
        running[:] = [Pass(start, int(tokens.shape[1]), prompt_length)]

    return hook


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
