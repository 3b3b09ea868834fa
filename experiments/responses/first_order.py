"""First-order effects of edits on onset log-odds: one backward pass a prompt prices every direction at every layer.

Setting the projection on a unit vector r to a target changes the log-odds s by about (target - r·x) r·∂s/∂x, summed
over the edited tokens, and adding a r changes them by about a r·∂s/∂x (attribution patching, arXiv 2310.10348). Streams
and gradients are those of the unedited model, so the estimate costs two products for each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from extract.model.edit import Edit, Pass, Site


@dataclass(frozen=True)
class Sensitivity:
    """The unedited log-odds of some prompts, with stream and gradient at the tokens that edits change."""

    log_odds: Float[np.ndarray, " prompts"]
    streams: Mapping[int, Float[Tensor, "prompts tokens d_model"]]  # by layer, in float32
    gradients: Mapping[int, Float[Tensor, "prompts tokens d_model"]]  # nats for each unit of the stream

    def setting(self, layer: int, r: Float[np.ndarray, " d_model"], target: float) -> Float[np.ndarray, " prompts"]:
        """Return the change of the log-odds, in nats, where the projection on r is set to a target."""
        x, slope = self._along(self.streams[layer], r), self._along(self.gradients[layer], r)
        return _numbers(((target - x) * slope).sum(dim=1))

    def adding(self, layer: int, r: Float[np.ndarray, " d_model"], amount: float) -> Float[np.ndarray, " prompts"]:
        """Return the change of the log-odds, in nats, where `amount` times r is added."""
        return _numbers(amount * self._along(self.gradients[layer], r).sum(dim=1))

    @staticmethod
    def _along(values: Tensor, r: np.ndarray) -> Tensor:
        return values @ torch.from_numpy(np.ascontiguousarray(r, dtype=np.float32)).to(values.device)


class StreamGradients:
    """Takes the gradient of a number by the stream at some layers, at the tokens of one forward pass after another."""

    def __init__(self, site: Site, layers: tuple[int, ...], *, first_token: bool) -> None:
        """Prepare the edits that watch the stream.

        Args:
            first_token: keep the first token of each pass alone, as where an edit changes the last prompt token only.
        """
        self.edits = [Edit(site, layer, self._watching(layer)) for layer in layers]
        self._kept = slice(0, 1) if first_token else slice(None)
        self._running: dict[int, tuple[Tensor, Tensor]] = {}
        self._streams: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        self._gradients: dict[int, list[Tensor]] = {layer: [] for layer in layers}

    def add(self, total: Tensor) -> None:
        """Keep streams and gradients of the pass that `total` was computed in."""
        gradients = torch.autograd.grad(total, [shift for _, shift in self._running.values()])
        for (layer, (stream, _)), gradient in zip(self._running.items(), gradients, strict=True):
            self._streams[layer].append(stream[:, self._kept].float())
            self._gradients[layer].append(gradient[:, self._kept].float())
        self._running = {}

    def sensitivity(self, log_odds: Float[np.ndarray, " prompts"]) -> Sensitivity:
        """Return what was kept, the tokens of all passes side by side."""
        streams, gradients = (
            {layer: torch.cat(parts, dim=1) for layer, parts in kept.items()}
            for kept in (self._streams, self._gradients)
        )
        return Sensitivity(log_odds, streams, gradients)

    def _watching(self, layer: int) -> Callable[[Tensor, Pass], Tensor]:
        def function(stream: Tensor, _pass: Pass) -> Tensor:
            shift = torch.zeros_like(stream, requires_grad=True)
            self._running[layer] = (stream.detach(), shift)
            return stream + shift

        return function


def _numbers(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.cpu().double().numpy()
    return array
