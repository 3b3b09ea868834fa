"""Edits that ablate or add a write direction, or a subspace of k directions; of rank 1 it is its direction."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor

from extract.model.edit import Edit, site
from probes.direction import Direction, Subspace, vector_digest
from steering.ablation_variant import DEFAULT, TokenScope, Variant
from steering.interventions import DeviceCopies, Intervention, add, affine, place, set_projections, zero


def ablation(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate a write direction, in the form of the variant: one edit for each layer.

    - `affine`: affine concept editing; sets the projection to each layer's answering class mean (arXiv 2411.09003);
    - `zero`: directional ablation; sets the projection to zero (arXiv 2406.11717);
    - `additive`: contrastive activation addition with a negative sign; subtracts the class-mean difference.

    Layers without class means are not edited: check `covers_layers` first.
    """
    what = {"affine": "affine to {!r}", "zero": "zero", "additive": "add {!r}"}[variant.form]

    def intervention(amount: float) -> Intervention:
        if variant.form == "additive":
            return adding(amount * direction.vector.astype(np.float64))
        r = DeviceCopies(direction.vector)
        return lambda x: affine(x, r.on(x.device), amount)

    return [
        _edit(direction, layer, variant.tokens, intervention(float(amount)), what.format(float(amount)))
        for layer, amount in sorted(amounts(direction, variant).items())
    ]


def addition(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Contrastive activation addition (arXiv 2312.06681): add the class-mean difference at the direction's layer."""
    gap = direction.gap
    return [_edit(direction, direction.locus.layer, variant.tokens, adding(direction.vector, gap), f"add {gap!r}")]


def ablation_at_every_layer(direction: Direction, n_layers: int) -> list[Edit]:
    """Directional ablation at every layer and every token of prompt and response (arXiv 2406.11717)."""
    r, key = DeviceCopies(direction.vector), f"zero along {vector_digest(direction.vector)}"
    where = site(direction.locus.site)
    return [place(where, layer, "all", lambda x: zero(x, r.on(x.device)), key) for layer in range(n_layers)]


def covers_layers(direction: Direction, variant: Variant, n_layers: int) -> bool:
    """Return whether the direction has class means at every layer that the variant edits."""
    wanted = set(range(direction.locus.layer + 1, n_layers)) if variant.layers == "later" else set()
    return wanted <= set(direction.later_means)


def amounts(direction: Direction, variant: Variant) -> dict[int, float]:
    """Return what the projection is set to at each layer or, of an additive ablation, what is added to it."""
    own = direction.locus.layer
    later = direction.later_means if variant.layers == "later" else {}
    match variant.form:
        case "affine":
            if not direction.has_means:
                raise ValueError(f"direction {direction.name!r} has no class means to set its projection to")
            return {own: direction.mean_negative} | {layer: means[1] for layer, means in later.items()}
        case "zero":
            return dict.fromkeys([own, *later], 0.0)
        case "additive":
            return {own: -direction.gap}


def subspace_ablation(subspace: Subspace, variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate a subspace; see `ablation`. Later layers without class means stay; an additive one is at its own layer."""
    if subspace.rank == 1:
        return ablation(subspace.direction(0), variant)
    if variant.form == "additive":
        return [_adding_gaps(subspace, variant, -1.0)]
    goals = {subspace.locus.layer: subspace.mean_negative}
    if variant.layers == "later":
        goals |= {layer: means[1] for layer, means in subspace.later_means.items()}
    if variant.form == "zero":
        goals = {layer: np.zeros(subspace.rank) for layer in goals}
    return [setting(subspace, layer, goal, variant.tokens) for layer, goal in sorted(goals.items())]


def subspace_addition(subspace: Subspace, variant: Variant = DEFAULT) -> list[Edit]:
    """Add the k class-mean differences at the subspace's layer (contrastive activation addition, arXiv 2312.06681)."""
    if subspace.rank == 1:
        return addition(subspace.direction(0), variant)
    return [_adding_gaps(subspace, variant, 1.0)]


def adding(vector: Float[np.ndarray, " d_model"], amount: float = 1.0) -> Intervention:
    """Return the intervention that adds a vector."""
    r = DeviceCopies(vector)
    return lambda x: add(x, r.on(x.device), amount)


def _edit(direction: Direction, layer: int, tokens: TokenScope, intervention: Intervention, what: str) -> Edit:
    key = f"{what} along {vector_digest(direction.vector)}"
    return place(site(direction.locus.site), layer, tokens, intervention, key)


def setting(
    subspace: Subspace, layer: int, goal: Float[np.ndarray, " k"], tokens: TokenScope, strength: float = 1.0
) -> Edit:
    """Set the projections on a subspace to a goal, by the share `strength` of the way."""
    R, target = DeviceCopies(subspace.basis), DeviceCopies(np.asarray(goal, dtype=np.float32))
    solve = DeviceCopies(np.eye(subspace.rank, dtype=np.float32))

    def intervention(x: Tensor) -> Tensor:
        return set_projections(x, R.on(x.device), target.on(x.device), solve.on(x.device), strength)

    way = "set" if strength == 1 else f"{strength:g} of the way"
    key = f"{way} to {_numbers(goal)} in {subspace.digest}"
    return place(site(subspace.locus.site), layer, tokens, intervention, key)


def _adding_gaps(subspace: Subspace, variant: Variant, sign: float) -> Edit:
    gap = sign * (np.asarray(subspace.mean_positive) - np.asarray(subspace.mean_negative))
    vector = (gap @ subspace.basis.astype(np.float64)).astype(np.float32)
    key = f"add {_numbers(gap)} in {subspace.digest}"
    return place(site(subspace.locus.site), subspace.locus.layer, variant.tokens, adding(vector), key)


def _numbers(values: Float[np.ndarray, " k"]) -> str:
    return ", ".join(repr(float(value)) for value in values)
