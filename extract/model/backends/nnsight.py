"""The `nnsight` backend: edits as assignments in an nnsight trace around the call.

nnsight returns values strictly in forward order, once per generation step. The loop over steps ends when there are no
more steps; nnsight then warns, which is meant for traces written by hand and is silenced here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from transformers import PreTrainedModel

from extract.model.backends import BackendName, PlacedEdit, in_forward_order
from extract.model.blocks import FirstHalf, decoder_layers, edited_half, first_halves, stream_out

T = TypeVar("T")


class NNsightBackend:
    """Runs edits as assignments inside a trace."""

    name: BackendName = "nnsight"

    def __init__(self, model: PreTrainedModel) -> None:
        import nnsight

        self.model = model
        self._layers = decoder_layers(model)
        self._names = {module: name for name, module in model.named_modules()}
        self._root = nnsight.NNsight(model)

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        ordered = [(edit, self._envoys(edit)) for edit in in_forward_order(edits)]
        if not ordered:
            return call()
        results: list[T] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with self._root.trace(0, fn=lambda _: results.append(call())) as tracer:
                for _step in tracer.iter[:]:
                    for edit, envoys in ordered:
                        self._apply(edit, *envoys)
        return results[0]

    @cached_property
    def _halves(self) -> list[FirstHalf]:
        return first_halves(self.model, self._layers, self.name)

    def _envoys(self, edit: PlacedEdit) -> tuple[Any, Any]:
        layer = self._root.get(self._names[self._layers[edit.layer]])
        half = self._root.get(self._names[self._halves[edit.layer].module]) if edit.site == "resid_mid" else None
        return layer, half

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
        envoy.output = (changed, *output[1:]) if isinstance(output, tuple) else changed
