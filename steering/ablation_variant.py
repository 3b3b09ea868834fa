"""Ways of ablating a direction: in which form, at which layers, at which tokens.

The default (affine, at the direction's own layer, from the last prompt token on) makes one and the same edit in
selection, in its null, in the dissociation matrix and in the dials. It is one layer, where Arditi et al. ablate at all:
a verdict on two mechanisms needs to know which layer carries what. Where later layers compute the decision again, one
layer does little and `later` shows it; the run's own variant is then set to it (dissociate.layers).

An additive ablation acts at its own layer only: what it takes away stays away, so taking it away at every later layer
as well would take it many times over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["affine", "zero", "additive"]
LayerScope = Literal["selected", "later"]
TokenScope = Literal["last_prompt", "last_on"]


@dataclass(frozen=True)
class Variant:
    """How an ablation is made; `last_prompt` edits the last prompt token alone, `last_on` what is generated too."""

    form: Form = "affine"
    layers: LayerScope = "selected"
    tokens: TokenScope = "last_on"

    @property
    def name(self) -> str:
        return f"{self.form}/{self.layers}/{self.tokens}"


DEFAULT = Variant()
FORMS: tuple[Form, ...] = ("affine", "zero", "additive")
LAYER_SCOPES: tuple[LayerScope, ...] = ("selected", "later")
TOKEN_SCOPES: tuple[TokenScope, ...] = ("last_prompt", "last_on")
VARIANTS = tuple(
    Variant(form, layers, tokens)
    for form in FORMS
    for layers in LAYER_SCOPES
    for tokens in TOKEN_SCOPES
    if (form, layers) != ("additive", "later")
)
