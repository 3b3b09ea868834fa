"""Table of counterfactual outcomes: the response to every prompt under every combination of gate decisions.

Gates are decided at prefill, so the rates at any thresholds are a look-up. Dials that decide at every step are outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.completion_file import Completion, is_right
from extract.atomic_write import write_jsonl
from extract.progress import Advance, no_progress
from steering.actuator import OnsetBias
from steering.dial import decide
from steering.gates import DECISIONS
from steering.writer import ConstantGateWriter, Writer

Tau = float | Float[np.ndarray, "*settings prompts"]  # a dial's threshold, for all prompts (1) or one a prompt
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
    generated: Bool[np.ndarray, "prompts outcomes"] | None = None  # which outcomes there are; None: all

    @cached_property
    def known(self) -> Bool[np.ndarray, "prompts outcomes"]:
        """Which outcomes there are; the others have no action."""
        return np.ones(self.actions.shape, dtype=bool) if self.generated is None else self.generated

    @cached_property
    def _place(self) -> Int[np.ndarray, ...]:
        """The outcome at each tuple of gates, each counted from -1: an axis of length 3 a dial."""
        place = np.full((3,) * len(self.dials), -1)
        for i, outcome in enumerate(self.outcomes):
            if len(outcome) == len(self.dials):  # not that of the plain model, which is no gate's
                place[tuple(gate + 1 for gate in outcome)] = i
        return place

    def look_up(self, thresholds: Sequence[Tau], band: float = 0.0) -> Int[np.ndarray, "*settings prompts"]:
        """Return the place of each prompt's outcome in `outcomes`; ValueError in a dead band without outcomes.

        Thresholds of shape (settings, 1) are tried one after the other.
        """
        shape = np.broadcast_shapes(self.probability.shape[1:], *map(np.shape, thresholds))
        probability = np.expand_dims(self.probability, tuple(range(1, len(shape))))
        each = np.stack([np.broadcast_to(tau, shape) for tau in thresholds])
        places = np.asarray(self._place[tuple(decide(probability, each, band) + 1)])
        if lacking := int((places < 0).any(axis=tuple(range(places.ndim - 1))).sum()):
            raise ValueError(f"{lacking} prompts lie in a dead band of {band}, but the table was made without one")
        return places

    def actions_at(self, thresholds: Sequence[Tau], band: float = 0.0) -> Shaped[np.ndarray, " prompts"]:
        """Return the action of every prompt; see `look_up`. ValueError: some outcomes were not generated."""
        rows, places = np.arange(len(self.actions)), self.look_up(thresholds, band)
        if lacking := int((~self.known[rows, places]).sum()):
            raise ValueError(f"{lacking} prompts have no outcome at these thresholds: surface.parquet has those tried")
        return self.actions[rows, places]


@dataclass
class OutcomeGenerator:
    """Generates outcomes of a run's prompts, by the writers in the order in which they decide."""

    loaded: LoadedRun
    writers: Sequence[tuple[str, Writer]]
    dead_band: bool
    said: dict[tuple[int, int], Completion] = field(default_factory=dict)  # by row, and place of the outcome

    def start(self, probability: Sequence[Float[np.ndarray, " prompts"]]) -> Counterfactuals:
        """Return a table without outcomes, but those that are the plain completion.

        These are of gates that leave, and of gates that permit by an onset bias where the plain completion begins with
        none of its openings: a greedy choice stays the same where the score of another token is lowered.
        """
        outcomes = reachable_outcomes(len(self.writers), dead_band=self.dead_band)
        shape = len(self.loaded.prompts), len(outcomes)
        names, read = tuple(name for name, _ in self.writers), np.stack(probability)
        actions, nothing = np.full(shape, None, dtype=object), np.zeros(shape, dtype=bool)
        table = Counterfactuals(names, outcomes, read, actions, nothing, nothing)
        for place, gates in enumerate(outcomes):
            writing = [writer.actuator for (_, writer), gate in zip(self.writers, gates, strict=True) if gate]
            biases = [actuator for actuator in writing if isinstance(actuator, OnsetBias)]
            if 1 not in gates and len(biases) == len(writing):
                openings = [prefix for bias in biases for prefix in bias.prefixes]
                self.said |= {
                    (row, place): said
                    for row, said in enumerate(self.loaded.completions)
                    if not any(said.token_ids[: len(prefix)] in (prefix, prefix[:-1]) for prefix in openings)  # ended
                }
        return self._with(table, self.said)

    def generate(
        self, table: Counterfactuals, cells: Bool[np.ndarray, "prompts outcomes"], advance: Advance = no_progress
    ) -> Counterfactuals:
        """Return the table with some more outcomes."""
        rows = [np.flatnonzero(column).tolist() for column in (cells & ~table.known).T]
        places = [place for place, own in enumerate(rows) if own]
        held = [
            [ConstantGateWriter(writer, gate) for (_, writer), gate in zip(self.writers, gates, strict=True)]
            for gates in (table.outcomes[place] for place in places)
        ]
        wanted = [rows[place] for place in places]
        settings = [Setting(held=gates, thoughts=self.loaded.thoughts_before_dials) for gates in held]
        done = self.loaded.completer.complete_some(wanted, settings, advance)
        new = {
            (row, place): said
            for place, own, completions in zip(places, wanted, done, strict=True)
            for row, said in zip(own, completions, strict=True)
        }
        self.said |= new
        return self._with(table, new)

    def _with(self, table: Counterfactuals, said: Mapping[tuple[int, int], Completion]) -> Counterfactuals:
        actions, right, known = table.actions.copy(), table.right.copy(), table.known.copy()
        for cell, completion in said.items():
            actions[cell], right[cell] = completion.action, is_right(completion, self.loaded.prompts[cell[0]])
            known[cell] = True
        return replace(table, actions=actions, right=right, generated=known)


def write_table(table: Counterfactuals, ids: Sequence[str], parts: Sequence[str], path: Path) -> None:
    """Write JSONL, one prompt a line: each dial's probability, and action and correctness of each outcome there is."""
    names = [outcome_name(gates) for gates in table.outcomes]
    lines = []
    for i, (id_, part) in enumerate(zip(ids, parts, strict=True)):
        each = zip(names, table.actions[i], table.right[i].tolist(), strict=True)
        known = table.known[i].tolist()
        outcomes = {
            name: {"action": action, "right": right}
            for there, (name, action, right) in zip(known, each, strict=True)
            if there
        }
        probability = dict(zip(table.dials, table.probability[:, i].tolist(), strict=True))
        lines.append({"id": id_, "part": part, "probability": probability, "outcomes": outcomes})
    write_jsonl(path, lines)


def read_table(path: Path) -> Counterfactuals:
    """Read a table written by `write_table`."""
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    dials = tuple(rows[0]["probability"])
    dead_band = any(not {"leave", "leave+leave"}.isdisjoint(row["outcomes"]) for row in rows)
    outcomes = reachable_outcomes(len(dials), dead_band=dead_band)
    names = [outcome_name(gates) for gates in outcomes]
    return Counterfactuals(
        dials,
        outcomes,
        np.array([[row["probability"][name] for row in rows] for name in dials]),
        np.array([[row["outcomes"].get(name, {}).get("action") for name in names] for row in rows], dtype=object),
        np.array([[row["outcomes"].get(name, {}).get("right", False) for name in names] for row in rows]),
        np.array([[name in row["outcomes"] for name in names] for row in rows]),
    )
