"""Edits that ablate a subspace or add its class-mean gaps: those of one direction, with k projections set together.

The basis is orthonormal, so setting its projections together and one after the other is the same. The variants are
those of `steering.ablation`; a subspace of rank 1 gives exactly the edits of its direction.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from extract.model.edit import Edit, site
from probes.subspace import Subspace
from steering.ablation import ablation, addition
from steering.ablation_variant import DEFAULT, Variant
from steering.device_copies import DeviceCopies
from steering.interventions import add, place, set_projections


def subspace_ablation(subspace: Subspace, variant: Variant = DEFAULT) -> list[Edit]:
    """Ablate a subspace, in the form of the variant.

    - `affine`: sets the projections to each layer's answering class means (affine concept editing, arXiv 2411.09003);
    - `zero`: sets the projections to zero (arXiv 2406.11717);
    - `additive`: subtracts the class-mean differences, at its own layer.

    Later layers without class means are not edited.
    """
    if subspace.rank == 1:
        return ablation(subspace.direction(0), variant)
    if variant.form == "additive":
        return [_adding(subspace, variant, -1.0)]
    goals = {subspace.locus.layer: subspace.mean_negative}
    if variant.layers == "later":
        goals |= {layer: means[1] for layer, means in subspace.later_means.items()}
    if variant.form == "zero":
        goals = {layer: np.zeros(subspace.rank) for layer in goals}
    return [_setting(subspace, variant, layer, goal) for layer, goal in sorted(goals.items())]


def subspace_addition(subspace: Subspace, variant: Variant = DEFAULT) -> list[Edit]:
    """Add the k class-mean differences at the subspace's layer (contrastive activation addition, arXiv 2312.06681)."""
    return addition(subspace.direction(0), variant) if subspace.rank == 1 else [_adding(subspace, variant, 1.0)]


def _setting(subspace: Subspace, variant: Variant, layer: int, goal: Float[np.ndarray, " k"]) -> Edit:
    R, target = DeviceCopies(subspace.basis), DeviceCopies(np.asarray(goal, dtype=np.float32))
    solve = DeviceCopies(np.eye(subspace.rank, dtype=np.float32))
    wanted = ", ".join(repr(float(value)) for value in goal)
    return place(
        site(subspace.locus.site),
        layer,
        variant.tokens,
        lambda x: set_projections(x, R.on(x.device), target.on(x.device), solve.on(x.device)),
        f"set to {wanted} in {subspace.digest}",
    )


def _adding(subspace: Subspace, variant: Variant, sign: float) -> Edit:
    gap = sign * (np.asarray(subspace.mean_positive) - np.asarray(subspace.mean_negative))
    vector = DeviceCopies((gap @ subspace.basis.astype(np.float64)).astype(np.float32))
    amounts = ", ".join(repr(float(value)) for value in gap)
    key = f"add {amounts} in {subspace.digest}"
    return place(
        site(subspace.locus.site), subspace.locus.layer, variant.tokens, lambda x: add(x, vector.on(x.device), 1.0), key
    )
