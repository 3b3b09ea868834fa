"""Edits that ablate write directions or add one as a steering vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extract.model.edit import Edit, Site, site
from probes.direction import Direction, vector_digest
from steering.ablation_variant import DEFAULT, Form, TokenScope, Variant
from steering.device_copies import DeviceCopies
from steering.interventions import Intervention, add, affine, place, set_projections, solver, zero


def ablation(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate a write direction, in the form of the variant; see `ablations`."""
    return ablations([direction], variant)


def ablations(directions: Sequence[Direction], variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate write directions at once, in the form of the variant: one edit for each site and layer.

    - `affine`: affine concept editing; sets the projection to each layer's answering class mean (arXiv 2411.09003);
    - `zero`: directional ablation; sets the projection to zero (arXiv 2406.11717);
    - `additive`: contrastive activation addition with a negative sign; subtracts the class-mean difference.

    Projections on several directions are set together, because one set after another would move the first again; along
    nearly parallel directions they meet between their targets (`interventions.solver`).

    Layers without class means are not edited: check `covers_layers` first.
    """
    places: dict[tuple[Site, int], list[tuple[Direction, float]]] = {}
    for direction in directions:
        for layer, amount in sorted(amounts(direction, variant).items()):
            places.setdefault((site(direction.locus.site), layer), []).append((direction, amount))
    return [
        place(where, layer, variant.tokens, _intervention(variant.form, ablated), _key(variant.form, ablated))
        for (where, layer), ablated in places.items()
    ]


def addition(direction: Direction, variant: Variant = DEFAULT) -> list[Edit]:
    """Contrastive activation addition (arXiv 2312.06681): add the class-mean difference at the direction's layer."""
    r, gap = DeviceCopies(direction.vector), direction.mean_positive - direction.mean_negative
    return [_edit(direction, direction.locus.layer, variant.tokens, _adding(r, gap), f"add {gap!r}")]


def ablation_at_every_layer(direction: Direction, n_layers: int) -> list[Edit]:
    """Directional ablation at every layer and every token of prompt and response (arXiv 2406.11717)."""
    r, key = DeviceCopies(direction.vector), f"zero along {vector_digest(direction.vector)}"
    return [place(site(direction.locus.site), layer, "all", _zeroing(r), key) for layer in range(n_layers)]


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
            return {own: direction.mean_negative} | {layer: means[1] for layer, means in later.items()}
        case "zero":
            return dict.fromkeys([own, *later], 0.0)
        case "additive":
            return {own: direction.mean_negative - direction.mean_positive}


def _intervention(form: Form, ablated: Sequence[tuple[Direction, float]]) -> Intervention:
    R = np.stack([direction.vector for direction, _ in ablated])
    amounts = np.array([amount for _, amount in ablated])
    if form == "additive":
        return _adding(DeviceCopies(amounts @ R), 1.0)
    if len(ablated) == 1:
        r, goal = DeviceCopies(R[0]), float(amounts[0])
        return lambda x: affine(x, r.on(x.device), goal)
    rows, goals, solve = DeviceCopies(R), DeviceCopies(amounts), DeviceCopies(solver(R))
    return lambda x: set_projections(x, rows.on(x.device), goals.on(x.device), solve.on(x.device))


def _key(form: Form, ablated: Sequence[tuple[Direction, float]]) -> str:
    what = {"affine": "affine to {!r}", "zero": "zero", "additive": "add {!r}"}[form]
    return " with ".join(f"{what.format(amount)} along {vector_digest(d.vector)}" for d, amount in ablated)


def _zeroing(r: DeviceCopies) -> Intervention:
    return lambda x: zero(x, r.on(x.device))


def _adding(r: DeviceCopies, amount: float) -> Intervention:
    return lambda x: add(x, r.on(x.device), amount)


def _edit(direction: Direction, layer: int, tokens: TokenScope, intervention: Intervention, what: str) -> Edit:
    key = f"{what} along {vector_digest(direction.vector)}"
    return place(site(direction.locus.site), layer, tokens, intervention, key)
