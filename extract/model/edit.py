"""Edits of the residual stream: each has a site, a layer and a function of the stream and the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from extract.capture_spec import SITES, Site
from extract.errors import UserError

__all__ = ["SITES", "Edit", "Pass", "Scope", "Site", "Stream", "reader", "site"]
Stream = Float[Tensor, "batch time d_model"]
Scope = Literal["last_prompt", "last_on", "all"]


def site(name: str) -> Site:
    """Return a site from its name; raises UserError if there is no such site."""
    if name not in SITES:
        raise UserError(f"no such site: {name!r}; expected one of {', '.join(SITES)}")
    return cast(Site, name)


@dataclass(frozen=True)
class Pass:
    """The tokens of the forward pass that an edit runs in."""

    start: int  # index of the first token of this pass, padding included; 0 at prefill
    length: int  # tokens in this pass
    prompt_length: int

    @property
    def is_prefill(self) -> bool:
        """Whether this pass holds the last prompt token."""
        return self.start < self.prompt_length <= self.start + self.length

    def within(self, first: int, last: int | None = None) -> slice:
        """Return the slice of this pass with absolute tokens `first` to `last` (excluded); None means to the end."""
        before = min(max(first - self.start, 0), self.length)
        after = self.length if last is None else min(last - self.start, self.length)
        return slice(before, max(before, after))

    def tokens(self, scope: Scope) -> slice:
        """Return the slice of this pass with a scope's tokens; it may include padding, which is never read."""
        if scope == "all":
            return self.within(self.start)
        return self.within(self.prompt_length - 1, self.prompt_length if scope == "last_prompt" else None)

    def covers(self, scope: Scope, device: torch.device) -> Bool[Tensor, " time"]:
        """Return the tokens of a scope as a mask over this pass."""
        covered = torch.zeros(self.length, dtype=torch.bool, device=device)
        covered[self.tokens(scope)] = True
        return covered


@dataclass(frozen=True)
class Edit:
    """A function applied to the residual stream at one site and layer, during every forward pass.

    `function(stream, pass_)` returns a stream of the same shape; the same tensor leaves every number bitwise unchanged.
    """

    site: Site
    layer: int
    function: Callable[[Stream, Pass], Stream]
    key: str = ""  # of what the function does: edits with one site, layer and key are equal, and responses are cached
    keeps_prompt: bool = False  # no token before the last prompt token is changed, so their keys and values serve


def reader(site: Site, layer: int, see: Callable[[Stream, Pass], object]) -> Edit:
    """Return an edit that only reads."""

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        see(stream, pass_)
        return stream

    return Edit(site, layer, function)
