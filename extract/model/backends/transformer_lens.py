"""The `transformer_lens` backend: hook points of a TransformerBridge on the unchanged Hugging Face weights.

The bridge does not change the weights (compatibility mode, which folds norms, stays off). It replaces the model's
blocks by its own, with eager attention. The bridged model runs under transformers' own `generate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.errors import UserError, in_one_line
from extract.model.backends import BackendName, PlacedEdit, in_forward_order
from extract.model.blocks import FirstHalf, edited_half

T = TypeVar("T")


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
        points = [point for edit in in_forward_order(edits) for point in self._points(edit)]
        with self._bridge.hooks(fwd_hooks=points):
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
