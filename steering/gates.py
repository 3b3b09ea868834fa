"""Readings and gates of the dials of one batch: decline (+1), permit (-1) or leave (0), decided at prefill and kept.

A dial that reads again at each generated token decides there by that token's own stream at or below every write. So
gates are the same with and without the key-value cache, and for any order of beams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from extract.errors import UserError
from steering.dial import UNLIKE, Asked, CategoryRead, Dial, Kind, Threshold, category_read, decide

AskedThreshold = Asked | Threshold
Thresholds = Mapping[Kind, AskedThreshold | Sequence[AskedThreshold]]
Decision = Literal["decline", "permit", "leave"]
DECISIONS: dict[int, Decision] = {1: "decline", -1: "permit", 0: "leave"}  # by gate
NEVER = 2**31 - 1  # the place of a token that there is not
PAST: dict[Decision, str] = {"decline": "declined", "permit": "permitted", "leave": "left"}


@dataclass(frozen=True)
class AnswerReading:
    """What a dial that alarms has read of an answer so far."""

    highest: float | None  # log-odds of declining at a token; null: none was read yet
    limit: float  # above which a token alarms
    at: int | None  # the first token that alarmed, from 0; null: none did


@dataclass(frozen=True)
class Reading:
    """What one dial read from a prompt, and its decision."""

    probability: float
    threshold: float | None  # null: off
    gate: Decision
    overruled: bool  # not applied, since the normative dial declined
    category: str | None = None  # the recognised category whose threshold this is; null: that of all prompts
    unlike: float | None = None  # share of certification prompts that are as far from the others; null: not compared
    answer: AnswerReading | None = None  # where the dial alarms


def reading_line(kind: Kind, read: Reading) -> str:
    """Return a reading as one line."""
    category = f" of {read.category!r}" if read.category is not None else ""
    threshold = "off" if read.threshold is None else f"{read.threshold:.2f}"
    why = " to the normative dial, which declined" if read.overruled else ""
    unlike = "; unlike every prompt it was certified on" if read.unlike is not None and read.unlike <= UNLIKE else ""
    line = (
        f"{kind}: probability {read.probability:.3f}, threshold{category} {threshold}, {PAST[read.gate]}{why}{unlike}"
    )
    if read.answer is None:
        return line
    alarmed = "no alarm" if read.answer.at is None else f"alarm at token {read.answer.at}"
    return f"{line}; in the answer: {alarmed} (it writes nothing)"


@dataclass
class AnswerWatch:
    """The highest log-odds of a batch's answers, and the first tokens that alarmed, where they are computed."""

    limit: float
    tokens: int  # of each answer that are read, at most, as when the limit was chosen
    highest: Float[Tensor, " rows"] | None = None
    at: Int[Tensor, " rows"] | None = None  # NEVER: none
    over: set[int] = field(default_factory=set)  # rows whose answer has ended, whatever follows in the batch

    def see(self, log_odds: Float[Tensor, "rows tokens"], first: int) -> None:
        """Add the log-odds of generated tokens, of which the first has this place in its answer."""
        log_odds = log_odds[:, : max(self.tokens - first, 0)]
        if not log_odds.shape[1]:
            return
        if self.over:
            log_odds = log_odds.index_fill(0, torch.tensor(sorted(self.over), device=log_odds.device), -torch.inf)
        place = torch.arange(first, first + log_odds.shape[1], device=log_odds.device)
        highest, at = log_odds.amax(dim=1), torch.where(log_odds > self.limit, place, NEVER).amin(dim=1)
        self.highest = highest if self.highest is None else torch.maximum(self.highest, highest)
        self.at = at if self.at is None else torch.minimum(self.at, at)

    def now(self) -> tuple[AnswerReading, ...]:
        """Return the reading of each row; none before a token was read."""
        if self.highest is None or self.at is None:
            return ()
        each = zip(self.highest.tolist(), self.at.tolist(), strict=True)
        return tuple(
            AnswerReading(high if math.isfinite(high) else None, self.limit, None if at == NEVER else at)
            for high, at in each
        )


@dataclass(repr=False)
class Readings:
    """Probabilities and gates of the dials for one batch, filled at prefill; each array has one entry a prompt.

    `later_*` are lists over generated tokens, where a dial reads again at each: arrays of an entry a decoded row (the
    beams of a prompt are adjacent), also after a response has ended.
    """

    probability: dict[Kind, Float[np.ndarray, " prompts"]] = field(default_factory=dict)
    gate: dict[Kind, Int[np.ndarray, " prompts"]] = field(default_factory=dict)
    threshold: dict[Kind, Float[np.ndarray, " prompts"]] = field(default_factory=dict)
    category: list[str | None] | None = None  # of each prompt, where dials have thresholds by category
    own: dict[Kind, list[bool]] = field(default_factory=dict)  # whether each prompt's threshold is its category's
    later_probability: dict[Kind, list[Float[np.ndarray, " rows"]]] = field(default_factory=dict)
    later_gate: dict[Kind, list[Int[np.ndarray, " rows"]]] = field(default_factory=dict)
    unlike: dict[Kind, Float[np.ndarray, " prompts"]] = field(default_factory=dict)
    answers: dict[Kind, AnswerWatch] = field(default_factory=dict)  # of dials that alarm

    def __repr__(self) -> str:
        said = (f"{kind} declines {int((gate > 0).sum())} of {len(gate)} prompts" for kind, gate in self.gate.items())
        return f"Readings({', '.join(said) or 'nothing read yet'})"

    def of_answers(self) -> dict[Kind, tuple[AnswerReading, ...]]:
        """Return what dials that alarm have read of each answer so far; it waits for the device."""
        return {kind: watch.now() for kind, watch in self.answers.items()}

    def of_prompt(self, row: int, answers: Mapping[Kind, Sequence[AnswerReading]] | None = None) -> dict[Kind, Reading]:
        """Return the reading of each dial on one prompt of the batch, the normative dial first.

        `answers` is what `of_answers` returned.
        """
        answers = self.of_answers() if answers is None else answers
        silent = {kind: AnswerReading(None, watch.limit, None) for kind, watch in self.answers.items()}
        declined = "normative" in self.gate and self.gate["normative"][row] > 0
        return {
            kind: Reading(
                probability=float(self.probability[kind][row]),
                threshold=None if math.isnan(tau := float(self.threshold[kind][row])) else tau,
                gate=DECISIONS[int(gate[row])],
                overruled=bool(declined and kind == "epistemic"),
                category=self.category[row] if self.category and self.own[kind][row] else None,
                unlike=float(self.unlike[kind][row]) if kind in self.unlike else None,
                answer=answers[kind][row] if answers.get(kind) else silent.get(kind),
            )
            for kind, gate in sorted(self.gate.items(), reverse=True)
        }


def row_thresholds(dials: Sequence[Dial], asked: Thresholds, n_prompts: int) -> dict[Kind, list[Threshold]]:
    """Return each dial's threshold for every prompt."""
    if absent := sorted(set(asked) - {dial.kind for dial in dials}):
        raise UserError(f"a threshold is given for the {absent[0]} dial, but there is no {absent[0]} dial")
    rows: dict[Kind, list[Threshold]] = {}
    for dial in dials:
        given = asked.get(dial.kind)
        each = [given] * n_prompts if given is None or isinstance(given, float | int | str | Threshold) else given
        if len(each) != n_prompts:
            raise UserError(f"there are {len(each)} {dial.kind} thresholds for {n_prompts} prompts: give one a prompt")
        rows[dial.kind] = [dial.resolved(one) for one in each]
    return rows


class Gates:
    """Collects the readings of the dials (`normative_first`), pass by pass, and decides when the last dial has read."""

    def __init__(
        self, dials: Sequence[Dial], thresholds: Mapping[Kind, Sequence[Threshold]], prompt_length: int
    ) -> None:
        self.readings = Readings()
        self.decided = False
        self._dials, self._thresholds, self._prompt_length = dials, thresholds, prompt_length
        self._reading: set[Kind | None] = {dial.kind for dial in dials if dial.read is not None}
        if category_read(dials) is not None:
            self._reading.add(None)
        self._rereading = {dial.kind for dial in dials if dial.reread}
        self._seen: set[Kind | None] = set()  # None: the category
        self._generated: dict[Kind, np.ndarray] = {}  # of one pass: probabilities at generated tokens, (rows, tokens)
        self._generated_gate: dict[Kind, np.ndarray] = {}

    def read(self, what: Dial | CategoryRead, streams: Float[np.ndarray, "prompts d_model"]) -> None:
        if isinstance(what, Dial):
            self.readings.probability[what.kind] = what.probability(streams)
            if what.reference is not None and what.reference.compares:
                self.readings.unlike[what.kind] = what.reference.unlike(streams)
        else:
            self.readings.category = what.recognised(streams)
        kind = what.kind if isinstance(what, Dial) else None
        self._seen = {kind} if self.decided else self._seen | {kind}
        self.decided = False
        if self._seen >= self._reading:
            self.decide_prompts()

    def decide_prompts(self) -> None:
        for kind, thresholds in self._thresholds.items():
            prompts = list(zip(thresholds, self.readings.category or [None] * len(thresholds), strict=True))
            self.readings.threshold[kind] = np.array([tau.of(name) for tau, name in prompts], dtype=np.float64)
            self.readings.own[kind] = [name in tau.by_category for tau, name in prompts]
        self.readings.gate.update(self._decide(self.readings.probability, self.readings.threshold))
        for kind in self._rereading:
            self.readings.later_probability[kind] = []
        self.readings.later_gate = {dial.kind: [] for dial in self._dials} if self._rereading else {}
        self.decided = True

    def _decide(
        self, probability: Mapping[Kind, np.ndarray], threshold: Mapping[Kind, np.ndarray]
    ) -> dict[Kind, Int[np.ndarray, ...]]:
        kinds = [dial.kind for dial in self._dials]
        if not kinds:
            return {}
        p = np.stack(np.broadcast_arrays(*(probability[kind] for kind in kinds)))
        band = np.array([dial.band for dial in self._dials]).reshape(-1, *[1] * (p.ndim - 1))
        return dict(zip(kinds, decide(p, np.stack([threshold[kind] for kind in kinds]), band), strict=True))

    def read_again(self, kind: Kind, probability: Float[np.ndarray, "rows tokens"], start: int) -> None:
        """Record a dial's probabilities at the tokens generated in a pass; `start` were generated before them."""
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
        self._generated_gate = self._decide(at_prefill | self._generated, thresholds)
        for k, gate in self._generated_gate.items():
            gates = self.readings.later_gate[k]
            gates += list(gate.T[max(len(gates) - start, 0) :])

    def at(self, kind: Kind, first: int, last: int, start: int, rows: int) -> Int[np.ndarray, "rows tokens"]:
        """Return the gates of the tokens in [`first`, `last`), absolute places; a single column where all are equal."""
        if not self.decided:
            raise UserError("the dials read whole prompts, and these were not run from their beginning")
        prefill = self.readings.gate[kind].repeat(rows // len(self.readings.gate[kind]))[:, None]
        if not self._rereading or last <= self._prompt_length:
            return prefill
        before = max(start, self._prompt_length)  # the first generated token of this pass
        generated = self._generated_gate[kind][:, max(first - before, 0) : last - before]
        return generated if first >= self._prompt_length else np.concatenate([prefill, generated], axis=1)
