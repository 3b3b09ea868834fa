"""Typed content of stages/effects.json: measurements, independent of margin and level. Rows index the run's prompts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int, Shaped

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


class OnsetLogOdds(Record):
    """Onset log-odds of one behaviour's decliners, of opening with their own way of declining, in nats."""

    rows: tuple[int, ...]
    before: Numbers
    after: dict[Kind, Numbers]  # by ablated direction


class NullEffects(Record):
    """The onset effect of one direction on one behaviour, and those of directions fitted on permuted labels."""

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


class VariantOutcomes(Record):
    """Outcomes of one variant of ablating one direction, for each prompt on which variants are tried."""

    ablated: Kind
    variant: str
    stopped: dict[Kind, tuple[bool, ...]]  # by behaviour, one for each row of its onset log-odds
    onset_effect: dict[Kind, float | None]
    benign_answered: tuple[bool, ...]  # one for each row of `MeasuredEffects.benign`


class MeasuredEffects(Record):
    """Everything that the verdict is judged from."""

    directions: tuple[Kind, ...]
    unsound: tuple[Kind, ...]  # directions of which no locus was within the limit of KL
    weak: tuple[Kind, ...] = ()  # directions that induce no declining when added, at any locus within that limit
    absent: dict[Kind, str]  # behaviours that cannot be tested, and why
    rows: tuple[int, ...]  # the test prompts, in order
    actions: dict[str, tuple[str | None, ...]]  # by intervention, one for each of `rows`; None: unjudged
    right: dict[str, tuple[bool, ...]]  # by intervention: whether the completion states the prompt's known answer
    onset: dict[Kind, OnsetLogOdds]  # by behaviour
    reads: dict[Kind, NonlinearRead] = {}  # of each behaviour's training samples
    null: dict[str, NullEffects] | None  # by `null_name`
    benign: tuple[int, ...]  # the answered benign prompts on which variants are tried
    variants: tuple[VariantOutcomes, ...]
    dependence: Dependence | None
    side_effects: dict[str, SideEffects]

    def actions_under(self, intervention: str, rows: Int[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """Return the actions on some test prompts under an intervention: object array of names, None if unjudged."""
        return np.array(self.actions[intervention], dtype=object)[np.searchsorted(self.rows, rows)]


def null_name(direction: Kind, behaviour: Kind) -> str:
    """Name the null of ablating a direction on a behaviour's decliners."""
    return f"{direction}_on_{behaviour}"
