"""Variants of ablating a direction: form, layers and tokens.

The forms are `affine` (affine concept editing), `zero` (directional ablation) and `additive` (activation addition with
a negative sign). The default (affine, the direction's own layer, from the last prompt token on) is the same edit in
selection, in its null, in the dissociation matrix and in the dials. It edits one layer, where Arditi et al. edit all,
because a verdict on two mechanisms depends on which layer carries which. If later layers compute the decision again,
editing one layer has little effect and `later` shows it; the run can then use that variant (dissociate.layers).

An additive ablation edits its own layer only: the subtracted vector is gone from all later layers too, so subtracting
it at each of them would remove it several times.
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
