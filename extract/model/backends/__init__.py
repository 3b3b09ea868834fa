"""Backends: three ways to edit the residual stream of a running model, equal to float tolerance.

`hooks` (PyTorch hooks, the fast path and the default), `nnsight` and `transformer_lens`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.model.edit import SITES, Site, Stream

BackendName = Literal["hooks", "nnsight", "transformer_lens"]
BACKENDS: tuple[str, ...] = get_args(BackendName)
T = TypeVar("T")


@dataclass(frozen=True)
class PlacedEdit:
    """A function of the stream at one site and layer, bound to the running pass."""

    site: Site
    layer: int
    apply: Callable[[Stream], Stream]


class Backend(Protocol):
    """Runs a model while functions look at, or change, its residual stream."""

    name: BackendName
    model: PreTrainedModel  # what calls run: the caller's model, or what the backend made of it

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        """Return `call()`, with `edits` applied in every forward pass it makes; what an edit raises comes through.

        Raises:
            UserError: this backend cannot reach a site on this architecture; names both.
        """
        ...


def in_forward_order(edits: Sequence[PlacedEdit]) -> list[PlacedEdit]:
    """Sort edits as a forward pass meets them; those at one place stay in the order given."""
    return sorted(edits, key=lambda edit: (edit.layer, SITES.index(edit.site)))


def open_backend(name: BackendName, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Backend:
    """Open a backend over a loaded model. `transformer_lens` rebuilds the model's blocks: it keeps the model."""
    match name:
        case "hooks":
            from extract.model.backends.hooks import HooksBackend

            return HooksBackend(model)
        case "nnsight":
            from extract.model.backends.nnsight import NNsightBackend

            return NNsightBackend(model)
        case "transformer_lens":
            from extract.model.backends.transformer_lens import TransformerLensBackend

            return TransformerLensBackend(model, tokenizer)
