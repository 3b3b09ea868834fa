"""Typed content of stages/effects.json: measurements besides the outcomes, independent of margin and level."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from experiments.dissociation.results import Dependence
from experiments.run.behaviour import Kind
from experiments.side_effects.results import SideEffects
from extract.record import Record
from probes.nonlinear_read import NonlinearRead
from probes.statistics.permutation import permutation_p

Numbers = tuple[float | None, ...]  # None: not finite, for example because an intervention breaks the model


def numbers(values: Iterable[float]) -> Numbers:
    """Return plain numbers for JSON, None for NaN and infinities."""
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def array(values: Numbers) -> Float[np.ndarray, " n"]:
    """Return numbers as an array, NaN for None."""
    return np.array(values, dtype=float)


class NullEffects(Record):
    """The onset effect of one direction on one behaviour, and those of directions fitted on permuted labels."""

    ablated: Kind
    behaviour: Kind
    observed: float | None
    drawn: Numbers
    generated: tuple[float, ...]  # for some drawn directions: share of decliners that the ablation stops
    n_labellings: float | None = None  # distinct labellings behind the drawn directions; None: more than can be counted

    @property
    def p(self) -> float:
        """One-sided p value: (1 + #{drawn >= observed}) / (1 + n); NaN with too few distinct labellings.

        An observed effect that is not finite counts as -inf, a drawn one as +inf.
        """
        drawn = np.nan_to_num(array(self.drawn), nan=np.inf)
        observed = -np.inf if self.observed is None else self.observed
        labellings = np.inf if self.n_labellings is None else self.n_labellings
        return float(permutation_p(drawn, observed, labellings=labellings))


class TriedVariant(Record):
    """One variant of ablating one direction; its outcomes have the variant's name as their condition."""

    ablated: Kind
    variant: str
    onset_effect: dict[Kind, float | None]


class MeasuredEffects(Record):
    """What the verdict is judged from besides the outcomes."""

    directions: tuple[Kind, ...]
    unsound: tuple[Kind, ...]  # directions of which no locus was within the limit of KL
    weak: tuple[Kind, ...] = ()  # directions that induce no declining when added, at any locus within that limit
    absent: dict[Kind, str]  # behaviours that cannot be tested, and why
    reads: dict[Kind, NonlinearRead] = {}  # of each behaviour's training samples
    null: tuple[NullEffects, ...] | None
    variants: tuple[TriedVariant, ...]
    dependence: Dependence | None
    side_effects: dict[str, SideEffects]

    def null_of(self, ablated: Kind, behaviour: Kind) -> NullEffects | None:
        """Return the null of ablating a direction on a behaviour's decliners; None if it was not drawn."""
        return next((one for one in self.null or () if (one.ablated, one.behaviour) == (ablated, behaviour)), None)
