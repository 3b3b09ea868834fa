"""Interventions on a residual stream: pure functions from tensor to tensor, and their placing in a model.

Each takes (..., d_model) and a unit vector r of shape (d_model,), and returns a new tensor. None of them makes the host
wait for the device, if r and what else is a tensor are on the stream's device already (`device_copies`).

`write_at` is the one way in which edits are placed, those of experiments (`place`) and those of dials (`writer`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from extract.model.edit import Edit, Pass, Scope, Site

Intervention = Callable[[Tensor], Tensor]
TokensOf = Callable[[Pass], slice]  # which tokens of a pass are written
Write = Callable[[Tensor, Pass], Tensor]  # the stream at those tokens, (batch, tokens, d_model), to what it becomes


def affine(
    stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"], target: float | Tensor, strength: float = 1.0
) -> Float[Tensor, "... d_model"]:
    """Set the projection on r to `target`: x - r (r·x) + r target (Marshall et al., arXiv 2411.09003).

    All is computed in float32 and rounded to the stream's dtype once. A tensor `target` has the leading shape.

    Args:
        strength: the share of the way to the target that is gone.
    """
    wide, r32 = stream.float(), r.to(stream.device, torch.float32)
    change = _near(target, stream) - wide @ r32
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
    change = projection.clamp(min=_near(least, stream)).clamp(max=_near(most, stream)) - projection
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
    r32, near = r.to(stream.device, torch.float32), _near(amount, stream)
    return (stream.float() + (near[..., None] if isinstance(near, Tensor) else near) * r32).to(stream.dtype)


def write_at(where: Site, layer: int, tokens: TokensOf, write: Write, key: str = "") -> Edit:
    """Change the stream at one site and layer, at some tokens of each pass.

    Args:
        tokens: computed on the host; an empty slice leaves the pass alone.
        write: what it returns unchanged, the same tensor, leaves the stream as it is, bitwise.
        key: names what is written exactly, so that responses under it can be cached.
    """

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        chosen = tokens(pass_)
        if chosen.start >= chosen.stop:
            return stream
        part = stream[:, chosen]
        written = write(part, pass_)
        if written is part:
            return stream
        if chosen.stop - chosen.start == stream.shape[1]:
            return written
        return torch.cat([stream[:, : chosen.start], written, stream[:, chosen.stop :]], dim=1)

    return Edit(where, layer, function, key)


def place(site: Site, layer: int, scope: Scope, intervention: Intervention, key: str = "") -> Edit:
    """Apply an intervention at one site and layer, to the tokens of a scope only.

    Args:
        key: names the intervention exactly (what it does, along which vector, by how much), for the same purpose.
    """
    return write_at(site, layer, lambda pass_: pass_.tokens(scope), lambda part, _: intervention(part),
                    f"{scope}/{key}" if key else "")  # fmt: skip


def for_rows(edit: Edit, rows: slice) -> Edit:
    """Restrict an edit to some rows of the batch, so that one pass can carry a different edit for each block."""

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        start, stop, _ = rows.indices(len(stream))
        return torch.cat([stream[:start], edit.function(stream[start:stop], pass_), stream[stop:]])

    return Edit(edit.site, edit.layer, function)


def _near(given: float | Tensor, stream: Tensor) -> float | Tensor:
    """Return a tensor as float32 on the stream's device; a number stays one, for sending it would wait."""
    return given.to(stream.device, torch.float32) if isinstance(given, Tensor) else given
