"""Interventions on a residual stream: pure functions from tensor to tensor, and their placing in a model.

Each takes (..., d_model) and a unit vector r of shape (d_model,), and returns a new tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from extract.model.edit import Edit, Pass, Scope, Site

Intervention = Callable[[Tensor], Tensor]


def affine(
    stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"], target: float | Tensor, strength: float = 1.0
) -> Float[Tensor, "... d_model"]:
    """Set the projection on r to `target`: x - r (r·x) + r target (Marshall et al., arXiv 2411.09003).

    All is computed in float32 and rounded to the stream's dtype once. A tensor `target` has the leading shape.

    Args:
        strength: the share of the way to the target that is gone.
    """
    wide, r32 = stream.float(), r.to(stream.device, torch.float32)
    change = _numbers(target, stream) - wide @ r32
    return (wide + (strength * change)[..., None] * r32).to(stream.dtype)


def clamp(
    stream: Float[Tensor, "... d_model"],
    r: Float[Tensor, " d_model"],
    least: float | Tensor,
    most: float | Tensor,
    strength: float = 1.0,
) -> Float[Tensor, "... d_model"]:
    """Move the projection on r to the nearest number from `least` to `most`; within them x is left bitwise.

    Args:
        least, most: of the leading shape where they are tensors; an infinity leaves that side open.
        strength: the share of the way that is gone.
    """
    wide, r32 = stream.float(), r.to(stream.device, torch.float32)
    projection = wide @ r32
    change = torch.minimum(torch.maximum(projection, _numbers(least, stream)), _numbers(most, stream)) - projection
    return (wide + (strength * change)[..., None] * r32).to(stream.dtype)


def zero(stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"]) -> Float[Tensor, "... d_model"]:
    """Remove the component along r (Arditi et al., arXiv 2406.11717)."""
    return affine(stream, r, 0.0)


def add(
    stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"], amount: float | Tensor
) -> Float[Tensor, "... d_model"]:
    """Add `amount` times r, in residual-stream units (Arditi et al., arXiv 2406.11717).

    A tensor `amount` has the leading shape.
    """
    return (stream.float() + _numbers(amount, stream)[..., None] * r.to(stream.device, torch.float32)).to(stream.dtype)


def place(site: Site, layer: int, scope: Scope, intervention: Intervention, key: str = "") -> Edit:
    """Apply an intervention at one site and layer, to the tokens of a scope only.

    Args:
        key: names the intervention exactly (what it does, along which vector, by how much), if it is to be told apart.
    """

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        covered: Bool[Tensor, " time"] = pass_.covers(scope, stream.device)
        if not covered.any():
            return stream
        return torch.where(covered[None, :, None], intervention(stream), stream)

    return Edit(site, layer, function, f"{scope}/{key}" if key else "")


def for_rows(edit: Edit, rows: slice) -> Edit:
    """Restrict an edit to some rows of the batch, so that one pass can carry a different edit for each block."""

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        start, stop, _ = rows.indices(len(stream))
        return torch.cat([stream[:start], edit.function(stream[start:stop], pass_), stream[stop:]])

    return Edit(edit.site, edit.layer, function)


def _numbers(given: float | Tensor, stream: Tensor) -> Tensor:
    return torch.as_tensor(given, device=stream.device, dtype=torch.float32)
