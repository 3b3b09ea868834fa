"""Variants of ablating a direction: form, layers and tokens (docs/ablating.md).

The default edits the direction's own layer only, where Arditi et al. edit all, because a verdict on two mechanisms
depends on which layer carries which. An additive ablation is at its own layer only: what it subtracts is gone from all
later layers too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["affine", "zero", "additive"]
LayerScope = Literal["selected", "later"]
TokenScope = Literal["last_prompt", "last_on"]


@dataclass(frozen=True)
class Variant:
    """Form, layers and tokens of an ablation; `last_prompt`: last prompt token, `last_on`: generated tokens too."""

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
