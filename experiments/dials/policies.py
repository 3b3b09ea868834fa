"""Evaluation of the compared policies: two dials, one dial, a system line, the plain model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.counterfactuals import Counterfactuals, tabulate
from experiments.dials.one_dial import NAME, either_writers
from experiments.dials.operating_point import CERTIFIED_ON
from experiments.dials.read import CHOICE
from experiments.dials.results import RiskRates, Setting
from experiments.dials.surface import MEASURED, RISKS, Risk, Surface, axes_of, comparable, rates_of, risk_of
from experiments.dials.system_lines import LineResponses
from experiments.dials.tradeoff import REFERENCE, frontier
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from probes.statistics.pareto import hypervolume
from probes.statistics.threshold_candidates import candidate_thresholds
from steering.writer import Writer


@dataclass(frozen=True)
class PolicyEvaluation:
    """A table with its surface, and every risk counted on the choice, certification and test prompts."""

    table: Counterfactuals
    surface: Surface
    right: Bool[np.ndarray, " prompts"]  # the plain model states the known answer
    inputs: RunInputs

    def risks(self, *parts: str, names: Sequence[str] = MEASURED) -> dict[str, Risk]:
        corpus = self.inputs.corpus
        among = corpus.within(*parts)
        return {name: risk_of(name, self.table, corpus, self.right, among) for name in names}

    @cached_property
    def choice(self) -> dict[str, Risk]:
        return self.risks(*CHOICE)

    @cached_property
    def certification(self) -> dict[str, Risk]:
        return self.risks(CERTIFIED_ON, names=RISKS)

    @cached_property
    def test(self) -> dict[str, Risk]:
        return self.risks("test")

    @cached_property
    def front(self) -> Int[np.ndarray, " kept"]:
        """Pareto-optimal settings on the choice prompts, as indices into the surface."""
        return frontier(self.surface, self.choice)

    def with_plain(self) -> PolicyEvaluation:
        """Return the policy with one setting more, the last: no dial, so the plain model (its thresholds are NaN)."""
        table, plain, n = self.table, self.inputs.behaviour, len(self.table.outcomes)
        off = np.full((1, len(table.dials)), np.nan)
        outcomes = np.vstack([self.surface.outcome, np.full((1, len(plain.actions)), n, dtype=np.int8)])
        extended = replace(
            table,
            outcomes=(*table.outcomes, ()),
            actions=np.column_stack([table.actions, plain.actions]),
            right=np.column_stack([table.right, plain.correct]),
        )
        return replace(self, table=extended, surface=Surface(np.vstack([self.surface.settings, off]), outcomes))

    def choice_hypervolume(self) -> float:
        """Return the hypervolume of the frontier on the choice prompts."""
        return hypervolume(axes_of(rates_of(self.surface.at(self.front), self.choice)), REFERENCE)


def evaluate(
    inputs: RunInputs, table: Counterfactuals, declining: Sequence[Bool[np.ndarray, " prompts"]]
) -> PolicyEvaluation:
    """Evaluate a table at the candidate thresholds of the choice prompts.

    Args:
        declining: the prompts that each dial should decline.
    """
    chosen = inputs.corpus.rated & inputs.corpus.within(*CHOICE)
    thresholds = [candidate_thresholds(p[chosen], y[chosen]) for p, y in zip(table.probability, declining, strict=True)]
    surface = Surface.over(table, thresholds, inputs.config.steer.band)
    return PolicyEvaluation(table, surface, inputs.behaviour.correct, inputs)


def evaluate_one_dial(
    loaded: LoadedRun, writers: Mapping[Kind, Writer], probability: Float[np.ndarray, " prompts"]
) -> tuple[PolicyEvaluation, Writer] | None:
    """Build the one-dial baseline; of several write loci, the one with the largest hypervolume on the choice prompts.

    Args:
        probability: the probability that it reads.
    """
    candidates = either_writers(loaded, writers)
    if not candidates:
        return None
    made = []
    for writer in candidates:
        table = tabulate(loaded, {NAME: writer}, {NAME: probability}, dead_band=loaded.config.steer.band > 0)
        made.append((evaluate(loaded, table, [~loaded.corpus.benign]), writer))
    return max(made, key=lambda each: each[0].choice_hypervolume())


def evaluate_fixed(
    inputs: RunInputs,
    actions: Sequence[Shaped[np.ndarray, " rows"]],
    right: Sequence[Bool[np.ndarray, " rows"]],
    rows: Int[np.ndarray, " rows"],
) -> PolicyEvaluation:
    """Evaluate completions that depend on no threshold, one point each.

    Args:
        actions, right: of each point.
        rows: the prompts they answer, into the corpus.
    """
    n, k = len(inputs.prompts), len(actions)
    did, stated = np.full((n, k), None, dtype=object), np.zeros((n, k), dtype=bool)
    for column, (action, is_right) in enumerate(zip(actions, right, strict=True)):
        did[rows, column], stated[rows, column] = action, is_right
    table = Counterfactuals((), tuple(() for _ in range(k)), np.zeros((0, n)), did, stated)
    surface = Surface(np.zeros((k, 0)), np.repeat(np.arange(k, dtype=np.int8)[:, None], n, axis=1))
    return PolicyEvaluation(table, surface, inputs.behaviour.correct, inputs)


def evaluate_lines(
    inputs: RunInputs, lines: Sequence[LineResponses], rows: Int[np.ndarray, " rows"]
) -> PolicyEvaluation:
    """Evaluate the responses under system lines on test prompts."""
    return evaluate_fixed(inputs, [line.actions for line in lines], [line.right for line in lines], rows)


def setting_at(policy: PolicyEvaluation, index: int) -> Setting:
    """Return a setting with its rates on the choice prompts and on test."""
    here = policy.surface.at([index])
    return Setting(
        thresholds={name: float(tau) for name, tau in zip(policy.table.dials, here.settings[0], strict=True)},
        choice=_rates(here, policy.choice),
        test=_rates(here, policy.test),
    )


def _rates(here: Surface, risks: Mapping[str, Risk]) -> RiskRates:
    found = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
    return {name: None if np.isnan(rate) else rate for name, rate in found.items()}


def matched_setting(policy: PolicyEvaluation, most: float) -> int:
    """Return the setting with the fewest other mistakes among those with over-refusal of at most `most`.

    Both are measured on the choice prompts. Where every setting exceeds `most`, the one with the least over-refusal.
    """
    points = comparable(axes_of(rates_of(policy.surface, policy.choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])
