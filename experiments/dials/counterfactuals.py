"""Table of counterfactual outcomes: the response to every prompt under every combination of gate decisions.

Gates are decided at prefill, so the rates at any thresholds are a look-up. Dials that decide at every step are outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.completion_file import is_right
from extract.atomic_write import write_jsonl
from steering.dial import decide
from steering.gates import DECISIONS
from steering.writer import ConstantGateWriter, Writer

Name = TypeVar("Name", bound=str)
Tau = float | Float[np.ndarray, " prompts"]  # a dial's threshold, for all prompts or one a prompt
Outcome = tuple[int, ...]  # the gate of each dial in turn: 1 declines, -1 permits, 0 leaves the stream unchanged


def reachable_outcomes(n_dials: int, *, dead_band: bool) -> tuple[Outcome, ...]:
    """List the possible outcomes of a prompt, the gates in their order; after one that declines the others leave."""
    if n_dials == 0:
        return ((),)
    others = reachable_outcomes(n_dials - 1, dead_band=dead_band)
    passing = product((-1, 0) if dead_band else (-1,), others)
    return ((1, *(0,) * (n_dials - 1)), *((own, *rest) for own, rest in passing))


def outcome_name(gates: Outcome) -> str:
    """Name an outcome: `decline`, `permit+decline`, `permit+permit` and so on."""
    stop = gates.index(1) + 1 if 1 in gates else len(gates)
    return "+".join(DECISIONS[gate] for gate in gates[:stop])


@dataclass(frozen=True)
class Counterfactuals:
    """The table: the action of each prompt under each outcome, and the probability that each dial read."""

    dials: tuple[str, ...]  # in the order in which they decide
    outcomes: tuple[Outcome, ...]
    probability: Float[np.ndarray, "dials prompts"]
    actions: Shaped[np.ndarray, "prompts outcomes"]  # object: action names, None where unjudged
    right: Bool[np.ndarray, "prompts outcomes"]  # the known answer is stated

    @cached_property
    def _place(self) -> Int[np.ndarray, ...]:
        """The outcome at each tuple of gates, each counted from -1: an axis of length 3 a dial."""
        place = np.full((3,) * len(self.dials), -1)
        for i, outcome in enumerate(self.outcomes):
            if len(outcome) == len(self.dials):  # not that of the plain model, which is no gate's
                place[tuple(gate + 1 for gate in outcome)] = i
        return place

    def look_up(self, thresholds: Sequence[Tau], band: float = 0.0) -> Int[np.ndarray, " prompts"]:
        """Return the place of each prompt's outcome in `outcomes`; ValueError in a dead band without outcomes."""
        each = [np.broadcast_to(tau, p.shape) for p, tau in zip(self.probability, thresholds, strict=True)]
        places = np.asarray(self._place[tuple(decide(self.probability, np.stack(each), band) + 1)])
        if (places < 0).any():
            raise ValueError(
                f"{int((places < 0).sum())} prompts lie in a dead band of {band}, but the table was made without one"
            )
        return places

    def actions_at(self, thresholds: Sequence[Tau], band: float = 0.0) -> Shaped[np.ndarray, " prompts"]:
        """Return the action of every prompt; see `look_up`."""
        return self.actions[np.arange(len(self.actions)), self.look_up(thresholds, band)]


def tabulate(
    loaded: LoadedRun,
    writers: Mapping[Name, Writer],
    probability: Mapping[Name, Float[np.ndarray, " prompts"]],
    *,
    dead_band: bool,
) -> Counterfactuals:
    """Generate every outcome of every prompt of the run, by the writers in the order in which they decide."""
    outcomes, rows = reachable_outcomes(len(writers), dead_band=dead_band), range(len(loaded.prompts))
    held = {
        gates: [ConstantGateWriter(writer, gate) for writer, gate in zip(writers.values(), gates, strict=True)]
        for gates in outcomes
        if any(gates)
    }
    with loaded.reporter.task("every outcome of every prompt", len(held) * len(rows)) as advance:
        answered = loaded.completer.complete_each(rows, [Setting(held=gates) for gates in held.values()], advance)
    by_gates = dict(zip(held, answered, strict=True))
    completions = [by_gates.get(gates, loaded.completions) for gates in outcomes]  # gates that all leave change nothing
    actions = np.array([[completion.action for completion in column] for column in completions], dtype=object).T
    right = [[is_right(c, prompt) for c, prompt in zip(column, loaded.prompts, strict=True)] for column in completions]
    read = np.stack([probability[name] for name in writers])
    return Counterfactuals(tuple(writers), outcomes, read, actions, np.array(right).T)


def write_table(table: Counterfactuals, ids: Sequence[str], parts: Sequence[str], path: Path) -> None:
    """Write JSONL, one prompt a line: each dial's probability, and the action and correctness of each outcome."""
    names = [outcome_name(gates) for gates in table.outcomes]
    lines = []
    for i, (id_, part) in enumerate(zip(ids, parts, strict=True)):
        each = zip(names, table.actions[i], table.right[i].tolist(), strict=True)
        outcomes = {name: {"action": action, "right": right} for name, action, right in each}
        probability = dict(zip(table.dials, table.probability[:, i].tolist(), strict=True))
        lines.append({"id": id_, "part": part, "probability": probability, "outcomes": outcomes})
    write_jsonl(path, lines)


def read_table(path: Path) -> Counterfactuals:
    """Read a table written by `write_table`."""
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    dials = tuple(rows[0]["probability"])
    dead_band = not {"leave", "leave+leave"}.isdisjoint(rows[0]["outcomes"])
    outcomes = reachable_outcomes(len(dials), dead_band=dead_band)
    names = [outcome_name(gates) for gates in outcomes]
    return Counterfactuals(
        dials,
        outcomes,
        np.array([[row["probability"][name] for row in rows] for name in dials]),
        np.array([[row["outcomes"][name]["action"] for name in names] for row in rows], dtype=object),
        np.array([[row["outcomes"][name]["right"] for name in names] for row in rows]),
    )
