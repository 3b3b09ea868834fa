"""Blocks of `Model.steer`: what each adds or sets, and what it keeps of the blocks around it.

Projections that nested blocks set at one place are set together, so that none moves another's along an oblique
direction; of blocks along nearly the same direction the inner one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, get_args

import numpy as np
import torch

from extract.errors import UserError
from extract.model.edit import Edit, Scope, Site
from probes.direction import Direction
from steering import interventions

Form = Literal["add", "zero", "affine"]
SCOPES: tuple[Scope, ...] = ("all", "last_on", "last_prompt")  # each covers the ones after it


@dataclass(frozen=True, eq=False)
class SteeredBlock:
    """One block of `Model.steer`; refuses an unknown form or scope, and a scale that does not go with the form."""

    direction: Direction
    form: Form
    scale: float | None
    where: Site
    layers: Sequence[int]
    tokens: Scope

    def __post_init__(self) -> None:
        if self.tokens not in SCOPES:
            raise UserError(f"no such scope of tokens: {self.tokens!r}; expected one of {', '.join(get_args(Scope))}")
        if self.form not in get_args(Form):
            raise UserError(f"no such form: {self.form!r}; expected add, zero or affine")
        if self.form == "affine" and not self.direction.has_means:
            raise UserError(
                f"form='affine' sets a projection between two class means, which the direction {self.direction.name!r} "
                "has not; use form='add' or form='zero'"
            )
        if self.form == "zero" and self.scale is not None:
            raise UserError("directional ablation (form='zero') takes no scale")
        if self.form != "zero" and (self.scale is None or not math.isfinite(self.scale)):
            meaning = "with form='add' 1 adds the distance of the class means, with form='affine' 0 is the mean of the "
            raise UserError(f"give a finite scale, got {self.scale}: {meaning}negative class and 1 of the positive")

    @property
    def amount(self) -> float:
        """How much is added, or where the projection is set, in residual-stream units."""
        along = self.direction.gap * float(self.scale or 0.0)
        return along if self.form == "add" else self.direction.mean_negative + along if self.form == "affine" else 0.0

    def edits(self, blocks: Callable[[], Sequence[SteeredBlock]]) -> list[Edit]:
        """Return the edits of this block; `blocks` returns the open ones, of which those open now surround it."""
        setting = [one for one in blocks() if one.where == self.where and one.form != "add" and self.form != "add"]
        r = self.direction.vector
        oblique = [one for one in setting if abs(one.direction.vector @ r) <= interventions.NEARLY_PARALLEL]
        together = {layer: [*(one for one in oblique if layer in one.layers), self] for layer in self.layers}
        return [edit for layer in self.layers for edit in self._at(layer, together[layer], blocks)]

    def _at(
        self, layer: int, together: Sequence[SteeredBlock], blocks: Callable[[], Sequence[SteeredBlock]]
    ) -> list[Edit]:
        """Return an edit for each scope within this block's: there, what covers it is set together."""
        made = cache(_intervention)

        def edit(scope: Scope) -> Edit:
            covering = [one for one in together if SCOPES.index(one.tokens) <= SCOPES.index(scope)]
            return interventions.place(
                self.where, layer, scope, lambda x: made(*[o for o in covering if o in blocks()])(x)
            )

        inside = SCOPES[SCOPES.index(self.tokens) :]
        return [edit(scope) for scope in inside if scope in {one.tokens for one in together}]


def _intervention(*together: SteeredBlock) -> interventions.Intervention:
    if len(together) == 1:
        [last] = together
        r = torch.tensor(last.direction.vector)
        return (
            partial(interventions.add, r=r, amount=last.amount)
            if last.form == "add"
            else partial(interventions.affine, r=r, target=last.amount)
        )
    R = np.stack([one.direction.vector for one in together])
    goals = interventions.DeviceCopies(np.array([one.amount for one in together]))
    rows, solve = interventions.DeviceCopies(R), interventions.DeviceCopies(interventions.solver(R))
    return lambda x: interventions.set_projections(x, rows.on(x.device), goals.on(x.device), solve.on(x.device))
