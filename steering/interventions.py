"""Interventions on a residual stream, as pure functions from tensor to tensor, and their placement in a model.

Each takes a stream (..., d_model) and a unit vector r (d_model,), and returns a new tensor. None makes the host wait
for the device if its tensor arguments are on the stream's device already (`DeviceCopies`). All edits are placed by
`write_at`: those of experiments (`place`) and those of dials (`writer`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from extract.model.edit import Edit, Pass, Scope, Site

# Above this |cosine| two directions count as one, because setting their projections apart would move the stream far
# along what little distinguishes them.
NEARLY_PARALLEL = 0.9
Intervention = Callable[[Tensor], Tensor]
TokensOf = Callable[[Pass], slice]  # which tokens of a pass are written
Write = Callable[[Tensor, Pass], Tensor]  # the stream at those tokens, (batch, tokens, d_model), to the new stream


def affine(
    stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"], target: float | Tensor, strength: float = 1.0
) -> Float[Tensor, "... d_model"]:
    """Affine concept editing: set the projection on r to `target`, x - r (r·x) + r target (arXiv 2411.09003).

    Computed in float32 and rounded to the stream's dtype once. A tensor `target` has the leading shape.

    Args:
        strength: the share of the change that is made: 1 reaches the target, 0 changes nothing.
    """
    wide, r32 = stream.float(), r.to(stream.device, torch.float32)
    change = _near(target, stream) - wide @ r32
    return (wide + (strength * change)[..., None] * r32).to(stream.dtype)


def set_projections(
    stream: Float[Tensor, "... d_model"],
    R: Float[Tensor, "directions d_model"],
    target: Float[Tensor, "... directions"],
    solve: Float[Tensor, "... directions directions"],
    strength: float = 1.0,
) -> Float[Tensor, "... d_model"]:
    """Affine concept editing along k directions at once: x + Rᵀ(R Rᵀ)⁻¹(target - R x), with unit rows in R.

    Args:
        target: the projection on each direction afterwards, of the stream's leading shape or of one that broadcasts.
        solve: `solver` of the directions that are set; the others stay free.
        strength: the share of the change that is made.
    """
    return clamp_projections(stream, R, target, target, strength * solve)


def clamp_projections(
    stream: Float[Tensor, "... d_model"],
    R: Float[Tensor, "directions d_model"],
    least: Float[Tensor, "... directions"],
    most: Float[Tensor, "... directions"],
    solve: Float[Tensor, "... directions directions"],
) -> Float[Tensor, "... d_model"]:
    """As `set_projections`, with bounds: the projections are moved into [`least`, `most`]; one inside keeps its value.

    Args:
        least, most: of the stream's leading shape or of one that broadcasts; an infinity sets no bound on that side.
        solve: `solver` of the directions that are set or kept; the others stay free.
    """
    wide = stream.float()
    return (wide + projection_change(wide, R, least, most, solve)).to(stream.dtype)


def projection_change(
    stream: Float[Tensor, "... d_model"], R: Tensor, least: Tensor, most: Tensor, solve: Tensor
) -> Float[Tensor, "... d_model"]:
    """Return what `clamp_projections` adds to a float32 stream."""
    rows = R.to(stream.device, torch.float32)
    projection = stream @ rows.T
    bounded = projection.clamp(min=_near(least, stream)).clamp(max=_near(most, stream))
    weights = (solve.to(stream.device, torch.float32) @ (bounded - projection)[..., None])[..., 0]
    return weights @ rows


def solver(
    R: Float[np.ndarray, "directions d_model"], chosen: Bool[np.ndarray, " directions"] | None = None
) -> Float[np.ndarray, "directions directions"]:
    """Return (R Rᵀ)⁻¹ of the chosen directions (all by default), zero elsewhere, in float64.

    It is a pseudo-inverse: eigenvalues that two directions have only above |cosine| `NEARLY_PARALLEL` count as zero.
    Projections on such directions cannot be set apart and meet between their targets. So a change c of the projections
    moves the stream by at most |c| / sqrt(1 - `NEARLY_PARALLEL`).
    """
    R = np.asarray(R, dtype=np.float64)
    kept = np.flatnonzero(np.ones(len(R), dtype=bool) if chosen is None else chosen)
    values, vectors = np.linalg.eigh(R[kept] @ R[kept].T)
    apart = values > 1 - NEARLY_PARALLEL - 1e-6  # R is unit in float32
    full = np.zeros((len(R), len(R)))
    full[np.ix_(kept, kept)] = (vectors[:, apart] / values[apart]) @ vectors[:, apart].T
    return full


def clamp(
    stream: Float[Tensor, "... d_model"],
    r: Float[Tensor, " d_model"],
    least: float | Tensor,
    most: float | Tensor,
    strength: float = 1.0,
) -> Float[Tensor, "... d_model"]:
    """Affine concept editing with bounds: move the projection on r into [`least`, `most`]; inside, x is unchanged.

    Args:
        least, most: of the leading shape where they are tensors; an infinity sets no bound on that side.
        strength: the share of the change that is made.
    """
    wide, r32 = stream.float(), r.to(stream.device, torch.float32)
    projection = wide @ r32
    change = projection.clamp(min=_near(least, stream)).clamp(max=_near(most, stream)) - projection
    return (wide + (strength * change)[..., None] * r32).to(stream.dtype)


def zero(stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"]) -> Float[Tensor, "... d_model"]:
    """Directional ablation: remove the component along r (Arditi et al. 2024, arXiv 2406.11717)."""
    return affine(stream, r, 0.0)


def add(
    stream: Float[Tensor, "... d_model"], r: Float[Tensor, " d_model"], amount: float | Tensor
) -> Float[Tensor, "... d_model"]:
    """Contrastive activation addition (CAA): add `amount` times r (arXiv 2312.06681; ActAdd, arXiv 2308.10248).

    `amount` is in residual-stream units; a tensor `amount` has the leading shape.
    """
    r32, near = r.to(stream.device, torch.float32), _near(amount, stream)
    return (stream.float() + (near[..., None] if isinstance(near, Tensor) else near) * r32).to(stream.dtype)


def write_at(
    where: Site, layer: int, tokens: TokensOf, write: Write, key: str = "", *, keeps_prompt: bool = False
) -> Edit:
    """Change the stream at one site and layer, at some tokens of each pass.

    Args:
        tokens: computed on the host; an empty slice leaves the pass unchanged.
        write: if it returns its input, the same tensor, the stream is bitwise unchanged.
        key: identifies the edit exactly, so that responses under it can be cached; empty: not cached.
        keeps_prompt: `tokens` never holds one before the last prompt token.
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

    return Edit(where, layer, function, key, keeps_prompt)


def place(site: Site, layer: int, scope: Scope, intervention: Intervention, key: str = "") -> Edit:
    """Apply an intervention at one site and layer, to the tokens of a scope only; `key` as in `write_at`."""
    return write_at(
        site,
        layer,
        lambda pass_: pass_.tokens(scope),
        lambda part, _: intervention(part),
        f"{scope}/{key}" if key else "",
        keeps_prompt=scope != "all",
    )


def for_rows(edit: Edit, rows: slice) -> Edit:
    """Restrict an edit to some rows of the batch, so that one pass can have a different edit for each block.

    It does not keep the prompt, as it depends on the rows' places, and rows that have ended leave a shared batch.
    """

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        start, stop, _ = rows.indices(len(stream))
        return torch.cat([stream[:start], edit.function(stream[start:stop], pass_), stream[stop:]])

    return Edit(edit.site, edit.layer, function)


def _near(given: float | Tensor, stream: Tensor) -> float | Tensor:
    """Return a tensor as float32 on the stream's device; a number is kept, because a copy would wait."""
    return given.to(stream.device, torch.float32) if isinstance(given, Tensor) else given


class DeviceCopies:
    """Copies of a constant array, such as a direction that is written at every decoded token."""

    def __init__(self, values: Shaped[np.ndarray, ...]) -> None:
        kept = torch.float32 if values.dtype.kind == "f" else None  # an Apple chip has no float64
        self._host = torch.tensor(values, dtype=kept)
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the copies: another process may have other devices."""
        return {"_host": self._host, "_copies": {}}

    def on(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Shaped[Tensor, ...]:
        """Return the copy on a device; the same tensor each time."""
        at = device, dtype
        if at not in self._copies:
            with torch.inference_mode(False):  # inference tensors cannot enter a gradient later
                self._copies[at] = self._host.to(device, dtype)
        return self._copies[at]


class LastCopy:
    """Copies of small arrays that often repeat, such as gates: a copy is made only when the values change."""

    def __init__(self) -> None:
        self._values, self._copy = np.empty(0), torch.empty(0)

    def of(self, values: Shaped[np.ndarray, ...], device: torch.device) -> Shaped[Tensor, ...]:
        if self._copy.device != device or not np.array_equal(self._values, values):
            self._values, self._copy = values, torch.tensor(values, device=device)
        return self._copy
