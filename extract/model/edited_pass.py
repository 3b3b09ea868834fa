"""Forward passes under edits: each edit is bound to the pass it runs in and handed to the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from extract.errors import UserError
from extract.model.backends import Backend, PlacedEdit
from extract.model.blocks import Keywords
from extract.model.edit import Edit, Pass, Stream

T = TypeVar("T")


def run_edited(
    backend: Backend, decoder: nn.Module, call: Callable[[], T], edits: Sequence[Edit], prompt_length: int, name: str
) -> T:
    """Return `call()`, with edits applied in every forward pass it makes.

    Args:
        name: of the model, for messages.

    Raises:
        UserError: the model runs its blocks past its own decoder.
    """
    if not edits:
        return call()
    running: list[Pass] = []  # the pass that is running; none until the decoder is called
    handle = decoder.register_forward_pre_hook(_announce(running, prompt_length), with_kwargs=True)
    try:
        return backend.run(call, [_placed(edit, running, name) for edit in edits])
    finally:
        handle.remove()


def _announce(running: list[Pass], prompt_length: int) -> Callable[..., None]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: Keywords) -> None:
        tokens = args[0] if args else kwargs["input_ids"]
        cache = kwargs.get("past_key_values")
        start = int(cache.get_seq_length()) if cache is not None else 0
        running[:] = [Pass(start, int(tokens.shape[1]), prompt_length)]

    return hook


def _placed(edit: Edit, running: list[Pass], name: str) -> PlacedEdit:
    def apply(stream: Stream) -> Stream:
        if not running:
            raise UserError(f"{name} runs its blocks past its own decoder, so edits "
                            "cannot tell which tokens they see; use another model")  # fmt: skip
        return edit.function(stream, running[0])

    return PlacedEdit(edit.site, edit.layer, apply)
