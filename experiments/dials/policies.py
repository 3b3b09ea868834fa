"""The ways of moving the trade-off that stand side by side: two dials, one dial, a system line, nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.dials.counterfactuals import Counterfactuals, tabulate
from experiments.dials.one_dial import NAME, either_writers
from experiments.dials.operating_point import CERTIFIED_ON
from experiments.dials.read import CHOICE
from experiments.dials.surface import RISKS, Risk, Surface, axes_of, rates_of, risk_of
from experiments.dials.system_lines import UnderLine
from experiments.dials.tradeoff import REFERENCE, frontier
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from probes.statistics.pareto import hypervolume
from probes.statistics.threshold_candidates import cuts
from steering.writer import Writer


@dataclass(frozen=True)
class Counted:
    """A table with its surface, and every risk counted on the prompts that choose, that certify and that report."""

    table: Counterfactuals
    surface: Surface
    right: np.ndarray  # (n_prompts,) bool: known answers that are stated with no dial
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
    def front(self) -> np.ndarray:
        """Settings that no other beats on the prompts that choose."""
        return frontier(self.surface, self.choice)

    def chosen_volume(self) -> float:
        """Return the volume of the frontier on the prompts that choose."""
        return hypervolume(axes_of(rates_of(self.surface.at(self.front), self.choice)), REFERENCE)


def counted(inputs: RunInputs, table: Counterfactuals, declining: Sequence[np.ndarray]) -> Counted:
    """Lay the surface of a table over the thresholds worth trying, as the prompts that choose tell them.

    Args:
        declining: the prompts that each dial should decline, (n_prompts,) bool.
    """
    chosen = inputs.corpus.within(*CHOICE)
    thresholds = [cuts(p[chosen], y[chosen]) for p, y in zip(table.probability, declining, strict=True)]
    surface = Surface.over(table, thresholds, inputs.config.steer.band)
    return Counted(table, surface, inputs.behaviour.correct, inputs)


def one_dial(
    loaded: LoadedRun, writers: Mapping[Kind, Writer], probability: np.ndarray
) -> tuple[Counted, Writer] | None:
    """Build the baseline of one dial, of several places the one that does best on the prompts that choose.

    Args:
        probability: what it reads, (n_prompts,).
    """
    candidates = either_writers(loaded, writers)
    if not candidates:
        return None
    made = []
    for writer in candidates:
        table = tabulate(loaded, {NAME: writer}, {NAME: probability}, leaves=loaded.config.steer.band > 0)
        made.append((counted(loaded, table, [~loaded.corpus.benign]), writer))
    return max(made, key=lambda each: each[0].chosen_volume())


def fixed(inputs: RunInputs, actions: Sequence[np.ndarray], right: Sequence[np.ndarray], rows: np.ndarray) -> Counted:
    """Take completions that follow no threshold, one point each.

    Args:
        actions, right: of each point, (n_rows,).
        rows: the prompts they answer, (n_rows,) into the corpus.
    """
    n, k = len(inputs.prompts), len(actions)
    did, stated = np.full((n, k), None, dtype=object), np.zeros((n, k), dtype=bool)
    for column, (action, is_right) in enumerate(zip(actions, right, strict=True)):
        did[rows, column], stated[rows, column] = action, is_right
    table = Counterfactuals((), tuple(() for _ in range(k)), np.zeros((0, n)), did, stated)
    surface = Surface(np.zeros((k, 0)), np.repeat(np.arange(k, dtype=np.int8)[:, None], n, axis=1))
    return Counted(table, surface, inputs.behaviour.correct, inputs)


def lines_counted(inputs: RunInputs, lines: Sequence[UnderLine], rows: np.ndarray) -> Counted:
    """Count what was said under system lines on test prompts."""
    return fixed(inputs, [line.actions for line in lines], [line.right for line in lines], rows)


def point_record(counted: Counted, index: int) -> dict[str, Any]:
    """Return a setting with its rates on the prompts that chose it and on test."""
    here = counted.surface.at([index])
    names = counted.table.dials
    return {
        "thresholds": {name: float(tau) for name, tau in zip(names, here.settings[0], strict=True)},
        "choice": _rates(here, counted.choice),
        "test": _rates(here, counted.test),
    }


def _rates(here: Surface, risks: Mapping[str, Risk]) -> dict[str, float | None]:
    found = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
    return {name: None if np.isnan(rate) else rate for name, rate in found.items()}


def matched(counted: Counted, most: float) -> int:
    """Return the setting with the fewest other mistakes among those that decline no more benign prompts.

    Both are judged on the prompts that choose; where every setting declines more, the one that declines least.
    """
    points = np.nan_to_num(axes_of(rates_of(counted.surface, counted.choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])
