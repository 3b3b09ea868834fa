"""Backends: three ways to edit the residual stream of a running model; their results agree to float tolerance.

The backends are `hooks` (PyTorch hooks, the fast path and the default), `nnsight` and `transformer_lens`.
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
    """A function of the stream at one site and layer, bound to the current forward pass."""

    site: Site
    layer: int
    apply: Callable[[Stream], Stream]


class Backend(Protocol):
    """Runs a model while functions read or change its residual stream."""

    name: BackendName
    model: PreTrainedModel  # the model that runs: the caller's, or the one that the backend built from it

    def run(self, call: Callable[[], T], edits: Sequence[PlacedEdit]) -> T:
        """Return `call()` with `edits` applied in every forward pass; errors of an edit are passed on.

        Raises:
            UserError: this backend cannot reach a site on this architecture; names both.
        """
        ...


def in_forward_order(edits: Sequence[PlacedEdit]) -> list[PlacedEdit]:
    """Sort edits in the order of the forward pass; edits at one site and layer keep their order."""
    return sorted(edits, key=lambda edit: (edit.layer, SITES.index(edit.site)))


def open_backend(name: BackendName, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Backend:
    """Open a backend on a loaded model. `transformer_lens` replaces the model's blocks for good."""
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
