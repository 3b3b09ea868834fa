"""Readings and gates of the dials of one batch: the normative gate decides first, then the epistemic gate.

A gate declines (+1), permits (-1) or leaves (0). It is decided at prefill and kept. If a dial reads again at each
generated token, its gate there depends only on that token's own stream at or below every write. So the gates are the
same with and without the key-value cache, and for any reordering of beams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from extract.errors import UserError
from steering.dial import Dial, Kind, category_read

Thresholds = Mapping[Kind, float | Sequence[float | None]]
DECISIONS = {1: "decline", -1: "permit", 0: "leave"}  # by gate, as files, tables and the server have them
DECISIONS_PAST = {1: "declined", -1: "permitted", 0: "left"}  # in sentences


@dataclass(repr=False)
class Readings:
    """Probabilities and gates of the dials for one batch, filled at prefill; each array has one entry a prompt.

    `later_probability` and `later_gate` are lists over the generated tokens, where a dial reads again at each; their
    arrays have one entry for each decoded row (the beams of a prompt are adjacent), also after a response has ended.
    """

    probability: dict[Kind, Float[np.ndarray, " prompts"]] = field(default_factory=dict)
    gate: dict[Kind, Int[np.ndarray, " prompts"]] = field(default_factory=dict)
    threshold: dict[Kind, Float[np.ndarray, " prompts"]] = field(default_factory=dict)
    category: list[str | None] | None = None  # of each prompt, where dials have thresholds by category
    own: dict[Kind, list[bool]] = field(default_factory=dict)  # whether each prompt's threshold is its category's
    later_probability: dict[Kind, list[Float[np.ndarray, " rows"]]] = field(default_factory=dict)
    later_gate: dict[Kind, list[Int[np.ndarray, " rows"]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        said = (f"{kind} declines {int((gate > 0).sum())} of {len(gate)} prompts" for kind, gate in self.gate.items())
        return f"Readings({', '.join(said) or 'nothing read yet'})"


def decide(
    dials: Sequence[Dial],
    probability: Mapping[Kind, Float[np.ndarray, ...]],
    thresholds: Mapping[Kind, Float[np.ndarray, ...]],
) -> dict[Kind, Int[np.ndarray, ...]]:
    """Return each dial's gates; the epistemic gate leaves where the normative gate declines.

    Args:
        probability, thresholds: by kind, of shapes that broadcast together.
    """
    gates: dict[Kind, np.ndarray] = {}
    for dial in normative_first(dials):
        gate = dial.gate(probability[dial.kind], thresholds[dial.kind])
        gates[dial.kind] = np.where(gates["normative"] > 0, 0, gate) if "normative" in gates else gate
    return gates


def normative_first(dials: Sequence[Dial]) -> list[Dial]:
    """Return dials in the order in which they decide."""
    return sorted(dials, key=lambda dial: dial.kind != "normative")


def row_thresholds(dials: Sequence[Dial], given: Thresholds, n_prompts: int) -> dict[Kind, list[float | None]]:
    """Return the threshold that is given to each dial for every prompt; None: its own.

    Raises:
        UserError: there is no such dial, or the number of thresholds is not the number of prompts.
    """
    if absent := sorted(set(given) - {dial.kind for dial in dials}):
        raise UserError(f"a threshold is given for the {absent[0]} dial, but there is no {absent[0]} dial")
    return {dial.kind: _of_rows(dial, given.get(dial.kind), n_prompts) for dial in dials}


def _of_rows(dial: Dial, given: float | Sequence[float | None] | None, n_prompts: int) -> list[float | None]:
    if given is None or isinstance(given, float | int):
        return [given] * n_prompts
    if len(given) != n_prompts:
        raise UserError(f"there are {len(given)} {dial.kind} thresholds for {n_prompts} prompts: give one a prompt")
    return list(given)


def resolved(
    dial: Dial, given: Sequence[float | None], categories: Sequence[str | None] | None
) -> tuple[Float[np.ndarray, " prompts"], list[bool]]:
    """Return the threshold of each prompt, and whether it is the one of its category.

    Args:
        given: the threshold that is asked for; None: the category's, or the dial's own where that has none.
        categories: the recognised category of each prompt; None: not read.
    """
    by_category = dial.by_category.thresholds if dial.by_category is not None else {}
    named = categories or [None] * len(given)
    own = [tau is None and name in by_category for tau, name in zip(given, named, strict=True)]
    found = [
        by_category[str(name)] if mine else dial.threshold if tau is None else tau
        for tau, name, mine in zip(given, named, own, strict=True)
    ]
    return np.array(found, dtype=np.float64), own


class Gates:
    """Collects the readings of the dials, pass by pass, and decides when the last dial has read."""

    def __init__(self, dials: Sequence[Dial], given: Mapping[Kind, Sequence[float | None]], prompt_length: int) -> None:
        self.readings = Readings()
        self.decided = False
        self._dials, self._given, self._prompt_length = dials, given, prompt_length
        self._reading: set[Kind | None] = {dial.kind for dial in dials if dial.read is not None}
        if category_read(dials) is not None:
            self._reading.add(None)
        self._rereading = {dial.kind for dial in dials if dial.reread}
        self._seen: set[Kind | None] = set()  # None: the category
        self._generated: dict[Kind, np.ndarray] = {}  # of one pass: probabilities at generated tokens, (rows, tokens)
        self._generated_gate: dict[Kind, np.ndarray] = {}

    def read(self, kind: Kind, probability: Float[np.ndarray, " prompts"]) -> None:
        """Record a dial's probabilities at prefill."""
        self.readings.probability[kind] = probability
        self._read(kind)

    def read_categories(self, names: Sequence[str | None]) -> None:
        """Record the recognised category of each prompt at prefill."""
        self.readings.category = list(names)
        self._read(None)

    def _read(self, what: Kind | None) -> None:
        self._seen = {what} if self.decided else self._seen | {what}
        self.decided = False
        if self._seen >= self._reading:
            self.decide_prompts()

    def decide_prompts(self) -> None:
        """Decide the gates of every prompt."""
        for dial in self._dials:
            tau, own = resolved(dial, self._given[dial.kind], self.readings.category)
            self.readings.threshold[dial.kind], self.readings.own[dial.kind] = tau, own
        self.readings.gate.update(decide(self._dials, self.readings.probability, self.readings.threshold))
        for kind in self._rereading:
            self.readings.later_probability[kind] = []
        self.readings.later_gate = {dial.kind: [] for dial in self._dials} if self._rereading else {}
        self.decided = True

    def read_again(self, kind: Kind, probability: Float[np.ndarray, "rows tokens"], start: int) -> None:
        """Record a dial's probabilities at the tokens generated in a pass.

        Args:
            start: number of tokens generated before them.
        """
        if not self.decided:
            return  # `at` raises if something is written
        self._generated = (
            {kind: probability} if self._generated.keys() >= self._rereading else self._generated | {kind: probability}
        )
        later = self.readings.later_probability[kind]
        later += list(probability.T[max(len(later) - start, 0) :])
        if not self._generated.keys() >= self._rereading:
            return
        beams = len(probability) // len(self.readings.gate[kind])
        at_prefill = {k: p.repeat(beams)[:, None] for k, p in self.readings.probability.items()}
        thresholds = {k: tau.repeat(beams)[:, None] for k, tau in self.readings.threshold.items()}
        found = decide(self._dials, at_prefill | self._generated, thresholds)
        self._generated_gate = {k: np.broadcast_to(gate, probability.shape) for k, gate in found.items()}
        for k, gate in self._generated_gate.items():
            gates = self.readings.later_gate[k]
            gates += list(gate.T[max(len(gates) - start, 0) :])

    def at(self, kind: Kind, first: int, last: int, start: int, rows: int) -> Int[np.ndarray, "rows tokens"]:
        """Return the gates of the tokens in [`first`, `last`); a single column where all are equal.

        Args:
            first, last: absolute token positions, from the last prompt token on.
            start: absolute position of the first token of the pass.
            rows: number of rows of the pass.

        Raises:
            UserError: the prompts were not read.
        """
        if not self.decided:
            raise UserError("the dials read whole prompts, and these were not run from their beginning")
        prefill = self.readings.gate[kind].repeat(rows // len(self.readings.gate[kind]))[:, None]
        if not self._rereading or last <= self._prompt_length:
            return prefill
        before = max(start, self._prompt_length)  # the first generated token of this pass
        generated = self._generated_gate[kind][:, max(first - before, 0) : last - before]
        return generated if first >= self._prompt_length else np.concatenate([prefill, generated], axis=1)
