"""Edits that ablate a write direction or add it as a steering vector."""

from __future__ import annotations

from extract.model.edit import Edit, Site
from probes.direction import Direction, vector_digest
from steering.ablation_variant import DEFAULT, TokenScope, Variant
from steering.device_copies import DeviceCopies
from steering.interventions import Intervention, add, affine, place, zero


def write_site(direction: Direction) -> Site:
    """Return the site of a write direction: `resid_post` unless it was fitted at `resid_pre`."""
    return "resid_pre" if direction.locus.site == "resid_pre" else "resid_post"


def ablation(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate a write direction, in the form of the variant.

    - `affine`: affine concept editing; sets the projection to each layer's answering class mean (arXiv 2411.09003);
    - `zero`: directional ablation; sets the projection to zero (arXiv 2406.11717);
    - `additive`: contrastive activation addition with a negative sign; subtracts the class-mean difference.

    Layers without class means are not edited: check `covers_layers` first.
    """
    own, r = direction.locus.layer, DeviceCopies(direction.vector)
    match variant.form:
        case "affine":
            goals = {own: direction.mean_negative}
            if variant.layers == "later":
                goals |= {layer: means[1] for layer, means in direction.later_means.items()}
            return [_edit(direction, layer, variant.tokens, _to(r, goal), f"affine to {goal!r}")
                    for layer, goal in sorted(goals.items())]  # fmt: skip
        case "zero":
            layers = [own, *direction.later_means] if variant.layers == "later" else [own]
            return [_edit(direction, layer, variant.tokens, _zeroing(r), "zero") for layer in sorted(layers)]
        case "additive":
            gap = direction.mean_positive - direction.mean_negative
            return [_edit(direction, own, variant.tokens, _adding(r, -gap), f"add {-gap!r}")]


def addition(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Contrastive activation addition (arXiv 2312.06681): add the class-mean difference at the direction's layer."""
    r, gap = DeviceCopies(direction.vector), direction.mean_positive - direction.mean_negative
    return [_edit(direction, direction.locus.layer, variant.tokens, _adding(r, gap), f"add {gap!r}")]


def ablation_at_every_layer(direction: Direction, n_layers: int) -> list[Edit]:
    """Directional ablation at every layer and every token of prompt and response (arXiv 2406.11717)."""
    r, key = DeviceCopies(direction.vector), f"zero along {vector_digest(direction.vector)}"
    return [place(write_site(direction), layer, "all", _zeroing(r), key) for layer in range(n_layers)]


def covers_layers(direction: Direction, variant: Variant, n_layers: int) -> bool:
    """Return whether the direction has class means at every layer that the variant edits."""
    wanted = set(range(direction.locus.layer + 1, n_layers)) if variant.layers == "later" else set()
    return wanted <= set(direction.later_means)


def _to(r: DeviceCopies, goal: float) -> Intervention:
    return lambda x: affine(x, r.on(x.device), goal)


def _zeroing(r: DeviceCopies) -> Intervention:
    return lambda x: zero(x, r.on(x.device))


def _adding(r: DeviceCopies, amount: float) -> Intervention:
    return lambda x: add(x, r.on(x.device), amount)


def _edit(direction: Direction, layer: int, tokens: TokenScope, intervention: Intervention, what: str) -> Edit:
    key = f"{what} along {vector_digest(direction.vector)}"
    return place(write_site(direction), layer, tokens, intervention, key)
