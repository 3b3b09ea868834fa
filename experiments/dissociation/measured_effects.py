"""stages/effects.json: what was measured, before any margin or level; rows are those of the run's prompts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int, Shaped

from experiments.dissociation.results import Dependence
from experiments.run.behaviour import Kind
from experiments.side_effects.results import SideEffects
from extract.record import Record
from probes.statistics.permutation import permutation_p

Numbers = tuple[float | None, ...]  # null: not finite, as where an intervention breaks the model


def numbers(values: Iterable[float]) -> Numbers:
    """Return plain numbers for JSON."""
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def array(values: Numbers) -> Float[np.ndarray, " n"]:
    """Return numbers to compute with, NaN for null."""
    return np.array(values, dtype=float)


class OnsetScores(Record):
    """Onset log-odds of one behaviour's decliners of their own way of declining."""

    rows: tuple[int, ...]
    before: Numbers
    after: dict[Kind, Numbers]  # by the direction ablated


class NullEffects(Record):
    """The onset effect of one direction on one behaviour, and those of directions fitted on permuted labels."""

    observed: float | None
    drawn: Numbers
    generated: tuple[float, ...]  # shares of decliners that a drawn direction's ablation stopped

    @property
    def p(self) -> float:
        """(1 + #{drawn >= observed}) / (1 + n), one-sided.

        An observed effect that is not finite is beyond nothing; a drawn one that is not finite is beyond everything.
        """
        drawn = np.nan_to_num(array(self.drawn), nan=np.inf)
        return float(permutation_p(drawn, -np.inf if self.observed is None else self.observed))


class VariantOutcomes(Record):
    """What one way of ablating one direction did to each prompt that variants are tried on."""

    ablated: Kind
    variant: str
    stopped: dict[Kind, tuple[bool, ...]]  # by behaviour, of the rows of its onset scores
    onset_effect: dict[Kind, float | None]
    benign_answered: tuple[bool, ...]  # of `MeasuredEffects.benign`


class MeasuredEffects(Record):
    """All that a verdict is judged from."""

    directions: tuple[Kind, ...]
    unsound: tuple[Kind, ...]  # directions none of whose loci met the selection rules
    absent: dict[Kind, str]  # behaviours that cannot be tested, and why
    rows: tuple[int, ...]  # the test prompts, in order
    actions: dict[str, tuple[str | None, ...]]  # by intervention, of `rows`; null where the judge could not tell
    right: dict[str, tuple[bool, ...]]  # likewise: the completion states the prompt's known answer
    onset: dict[Kind, OnsetScores]  # by behaviour
    null: dict[str, NullEffects] | None  # by `null_name`
    benign: tuple[int, ...]  # the answered benign prompts that variants are tried on
    variants: tuple[VariantOutcomes, ...]
    dependence: Dependence | None
    side_effects: dict[str, SideEffects]

    def actions_under(self, intervention: str, rows: Int[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """Return the actions on some test prompts under an intervention, as objects: names, or None."""
        return np.array(self.actions[intervention], dtype=object)[np.searchsorted(self.rows, rows)]


def null_name(direction: Kind, behaviour: Kind) -> str:
    """Name the null of ablating a direction on a behaviour's decliners."""
    return f"{direction}_on_{behaviour}"
