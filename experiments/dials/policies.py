"""Evaluation of the policies that are compared: two dials, one dial, a system line, no change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.counterfactuals import Counterfactuals, tabulate
from experiments.dials.one_dial import NAME, either_writers
from experiments.dials.operating_point import CERTIFIED_ON
from experiments.dials.read import CHOICE
from experiments.dials.results import RiskRates, Setting
from experiments.dials.surface import RISKS, Risk, Surface, axes_of, rates_of, risk_of
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
    """A table with its surface, and every risk counted on the prompts that choose, that certify and that report."""

    table: Counterfactuals
    surface: Surface
    right: Bool[np.ndarray, " prompts"]  # known answers that are stated with no dial
    inputs: RunInputs

    def risks(self, *parts: str) -> dict[str, Risk]:
        corpus = self.inputs.corpus
        among = corpus.within(*parts)
        return {name: risk_of(name, self.table, corpus, self.right, among) for name in RISKS}

    @cached_property
    def choice(self) -> dict[str, Risk]:
        return self.risks(*CHOICE)

    @cached_property
    def held(self) -> dict[str, Risk]:
        return self.risks(CERTIFIED_ON)

    @cached_property
    def test(self) -> dict[str, Risk]:
        return self.risks("test")

    @cached_property
    def front(self) -> Int[np.ndarray, " kept"]:
        """Settings that no other beats on the prompts that choose."""
        return frontier(self.surface, self.choice)

    def chosen_volume(self) -> float:
        """Return the hypervolume of the frontier on the prompts that choose."""
        return hypervolume(axes_of(rates_of(self.surface.at(self.front), self.choice)), REFERENCE)


def evaluate(
    inputs: RunInputs, table: Counterfactuals, declining: Sequence[Bool[np.ndarray, " prompts"]]
) -> PolicyEvaluation:
    """Evaluate a table at the thresholds worth trying, by the prompts that choose.

    Args:
        declining: the prompts that each dial should decline.
    """
    chosen = inputs.corpus.within(*CHOICE)
    thresholds = [candidate_thresholds(p[chosen], y[chosen]) for p, y in zip(table.probability, declining, strict=True)]
    surface = Surface.over(table, thresholds, inputs.config.steer.band)
    return PolicyEvaluation(table, surface, inputs.behaviour.correct, inputs)


def one_dial(
    loaded: LoadedRun, writers: Mapping[Kind, Writer], probability: Float[np.ndarray, " prompts"]
) -> tuple[PolicyEvaluation, Writer] | None:
    """Build the baseline of one dial, of several places the one that does best on the prompts that choose.

    Args:
        probability: what it reads.
    """
    candidates = either_writers(loaded, writers)
    if not candidates:
        return None
    made = []
    for writer in candidates:
        table = tabulate(loaded, {NAME: writer}, {NAME: probability}, leaves=loaded.config.steer.band > 0)
        made.append((evaluate(loaded, table, [~loaded.corpus.benign]), writer))
    return max(made, key=lambda each: each[0].chosen_volume())


def evaluate_fixed(
    inputs: RunInputs,
    actions: Sequence[Shaped[np.ndarray, " rows"]],
    right: Sequence[Bool[np.ndarray, " rows"]],
    rows: Int[np.ndarray, " rows"],
) -> PolicyEvaluation:
    """Evaluate completions that follow no threshold, one point each.

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
    """Evaluate what was said under system lines on test prompts."""
    return evaluate_fixed(inputs, [line.actions for line in lines], [line.right for line in lines], rows)


def setting_at(policy: PolicyEvaluation, index: int) -> Setting:
    """Return a setting with its rates on the prompts that chose it and on test."""
    here = policy.surface.at([index])
    return Setting(
        thresholds={name: float(tau) for name, tau in zip(policy.table.dials, here.settings[0], strict=True)},
        choice=_rates(here, policy.choice),
        test=_rates(here, policy.test),
    )


def _rates(here: Surface, risks: Mapping[str, Risk]) -> RiskRates:
    found = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
    return {name: None if np.isnan(rate) else rate for name, rate in found.items()}


def matched(policy: PolicyEvaluation, most: float) -> int:
    """Return the setting with the fewest other mistakes among those that decline no more benign prompts.

    Both are judged on the prompts that choose; where every setting declines more, the one that declines least.
    """
    points = np.nan_to_num(axes_of(rates_of(policy.surface, policy.choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])
