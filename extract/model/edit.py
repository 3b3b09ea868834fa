"""Edits of the residual stream: a site, a layer and a function of the stream, and the forward pass they run in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from extract.errors import UserError

Stream = Float[Tensor, "batch time d_model"]
Site = Literal["resid_pre", "resid_mid", "resid_post"]  # a block's input, between attention and MLP, its output
SITES: tuple[str, ...] = get_args(Site)
Scope = Literal["last_prompt", "last_on", "all"]


def site(name: str) -> Site:
    """Return a site by its name.

    Raises:
        UserError: there is no such site.
    """
    if name not in SITES:
        raise UserError(f"no such site: {name!r}; expected one of {', '.join(SITES)}")
    return cast(Site, name)


@dataclass(frozen=True)
class Pass:
    """The forward pass that an edit runs in: which tokens it holds."""

    start: int  # index of the first token of this pass, padding included; 0 at prefill
    length: int  # tokens in this pass
    prompt_length: int

    @property
    def is_prefill(self) -> bool:
        """Whether this pass holds the last prompt token."""
        return self.start < self.prompt_length <= self.start + self.length

    def within(self, first: int, last: int | None = None) -> slice:
        """Return where the tokens `first` to before `last`, absolute places, lie in this pass; None is its end."""
        before = min(max(first - self.start, 0), self.length)
        after = self.length if last is None else min(last - self.start, self.length)
        return slice(before, max(before, after))

    def tokens(self, scope: Scope) -> slice:
        """Return where the tokens of a scope lie in this pass (padding is never read, so it may be among them)."""
        match scope:
            case "last_prompt":
                return self.within(self.prompt_length - 1, self.prompt_length)
            case "last_on":
                return self.within(self.prompt_length - 1)
            case "all":
                return self.within(self.start)

    def covers(self, scope: Scope, device: torch.device) -> Bool[Tensor, " time"]:
        """Return the same as a mask."""
        covered = torch.zeros(self.length, dtype=torch.bool, device=device)
        covered[self.tokens(scope)] = True
        return covered


@dataclass(frozen=True)
class Edit:
    """A function applied to the residual stream at one site and layer, during every forward pass.

    `function(stream, pass_)` returns a stream of the same shape; it may also only look. What it
    returns unchanged, the same tensor, leaves the model's numbers bitwise as they were.
    `key` names what the function does, exactly: two edits of one site, layer and key are the same edit, so that what
    a model says under it can be remembered. An edit without one is never taken for another.
    """

    site: Site
    layer: int
    function: Callable[[Stream, Pass], Stream]
    key: str = ""
