"""Writers of gates, decided by a dial or constant for all prompts, and the edits that they make together.

What several gates write at one site and layer is one write: along oblique directions projections set one after the
other would move each other (`interventions.solver`). Only directions whose gates act on that row and token are set.

The target of a projection is its class mean, where no other gate declines: there the class means of the other dial are
measured too. Declining moves the stream along the gate's own direction by the gap between its class means, so the
targets of the other projections move along by cosine x gap; the bare class mean would undo a part of that decision.

Solvers, bounds and added vectors are computed on the host for each of the gates' 3^k joint states and looked up on the
device, so a decoded token waits for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from extract.model.edit import Edit, Pass, Site, site
from probes.direction import Direction, vector_digest
from steering.actuator import Actuator, Addition, Affine, OnsetBias, StreamActuator, actuator_record, effect
from steering.interventions import DeviceCopies, LastCopy, clamp_projections, solver, write_at
from steering.onset import OnsetProcessor

# first token, end, start of the pass (absolute positions), number of rows -> gates
GateLookup = Callable[[int, int, int, int], Int[np.ndarray, "rows tokens"]]


class LayerWrite(NamedTuple):
    """What a writer writes at one layer: a direction, with the class means there, and further ones where it permits."""

    direction: Direction
    actuator: StreamActuator
    opening: tuple[Direction, ...] = ()


@dataclass(frozen=True)
class Writer:
    """Write of a dial; `Dial` says what each field means. ValueError if they do not fit together.

    `opening` are further directions, at the same site and layer, whose projections are set to their answering means
    where the gate permits: over-refusal may have more directions than refusal (arXiv 2603.27518).
    """

    direction: Direction | None  # None for an onset bias
    actuator: Actuator
    steps: int | None = None
    later: bool = False
    opening: tuple[Direction, ...] = ()

    def __post_init__(self) -> None:
        if (self.direction is None) != isinstance(self.actuator, OnsetBias):
            raise ValueError("a dial writes along a direction, unless its actuator is an onset bias, which has none")
        if without := [d.name for d in (self.direction, *self.opening) if d is not None and not d.has_means]:
            raise ValueError(f"a dial writes relative to class means, which the direction {without[0]!r} has not")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"a dial writes at {self.steps} steps; expected 1 (the prefill) or more, or None for all")
        if self.later and isinstance(self.actuator, OnsetBias | Addition):
            raise ValueError(
                "a dial that writes at later layers too sets projections: its actuator must be affine or "
                "clamp (an added vector stays in later layers)"
            )
        own = None if self.direction is None else (self.direction.locus.site, self.direction.locus.layer)
        if any((at.locus.site, at.locus.layer) != own for at in self.opening):
            raise ValueError("a dial's opening directions are written where its own direction is")

    def at_layers(self) -> list[LayerWrite]:
        """Return what it writes into the stream, at each layer; `joint_edits` makes the edits."""
        own, actuator = self.direction, self.actuator
        if own is None or isinstance(actuator, OnsetBias) or not actuator.strength:
            return []
        writes = [LayerWrite(own, actuator, self.opening)]
        for layer, (on, off) in sorted(own.later_means.items()) if self.later else ():
            at = replace(own, locus=replace(own.locus, layer=layer), mean_positive=on, mean_negative=off)
            writes.append(LayerWrite(at, actuator))
        return writes

    def processors(self, prompt_length: int, gate: Callable[[], Int[np.ndarray, " prompts"]]) -> list[OnsetProcessor]:
        if not isinstance(self.actuator, OnsetBias):
            return []
        return [OnsetProcessor(self.actuator, prompt_length, gate, self.steps)]


@dataclass(frozen=True)
class ConstantGateWriter:
    """A writer with the same gate for every prompt, like a dial that always decides the same."""

    writer: Writer
    gate: int  # 1 declines, -1 permits, 0 leaves the stream unchanged

    def processors(self, prompt_length: int) -> list[OnsetProcessor]:
        return self.writer.processors(prompt_length, lambda: np.array([self.gate])) if self.gate else []

    @property
    def biases(self) -> list[str]:
        key = json.dumps([self.gate, self.writer.steps, actuator_record(self.writer.actuator).to_dict(), ""])
        return [key] * len(self.processors(1))


@dataclass(frozen=True)
class GatedWriter:
    """A writer with its gates, and a key that identifies them, so that responses can be cached; empty: not cached."""

    writer: Writer
    gates_at: GateLookup
    key: str = ""


def joint_edits(writers: Sequence[GatedWriter]) -> list[Edit]:
    """Return the edits of the residual stream, one for each site and layer at which a writer writes."""
    places: dict[tuple[Site, int], list[tuple[GatedWriter, LayerWrite]]] = {}
    for gated in writers:
        for write in gated.writer.at_layers():
            locus = write.direction.locus
            places.setdefault((site(locus.site), locus.layer), []).append((gated, write))
    return [_joint_edit(*place, parts) for place, parts in places.items()]


def held_edits(held: Sequence[ConstantGateWriter]) -> list[Edit]:
    """Return the edits under constant gates, with keys, so that responses under them can be cached."""

    def constant(gate: int) -> GateLookup:
        return lambda first, last, start, rows: np.full((rows, 1), gate)

    return joint_edits([GatedWriter(one.writer, constant(one.gate), str(one.gate)) for one in held if one.gate])


def _key(gated: GatedWriter, write: LayerWrite) -> list[object]:
    at, record = write.direction, actuator_record(write.actuator).to_dict()
    means = at.mean_positive, at.mean_negative
    key: list[object] = [gated.key, gated.writer.steps, record, vector_digest(at.vector), *means]
    opened = [[vector_digest(one.vector), one.mean_negative] for one in write.opening]
    return [*key, "where permitted", opened] if opened else key


def _gates(gated: GatedWriter, first: int, n_tokens: int, pass_: Pass, rows: int) -> Int[np.ndarray, "rows tokens"]:
    """Return the gates of `n_tokens` tokens from `first` on, 0 past the last step; one column if all are equal."""
    steps = gated.writer.steps
    n_written = n_tokens if steps is None else pass_.prompt_length - 1 + steps - first
    if n_written <= 0:
        return np.zeros((rows, 1), dtype=int)
    gates = gated.gates_at(first, first + n_tokens, pass_.start, rows)
    return gates if n_written >= n_tokens else gates * (np.arange(n_tokens) < n_written)


@dataclass(frozen=True)
class JointTables:
    """What several gates write at one place, for each of their 3^k joint states; state `idle` writes nothing.

    A state is the number with the digits gate + 1 in base 3, the first gate first (`powers`). A gate has one direction,
    and may have further ones that it writes where it permits.
    """

    R: DeviceCopies  # (directions, d_model)
    added: DeviceCopies | None  # (states, d_model): vectors that are added first; None: no state adds any
    least: DeviceCopies  # (states, directions): bounds of the projections on R afterwards
    most: DeviceCopies
    solve: DeviceCopies  # (states, directions, directions): from changes of projections to weights of R's rows
    powers: Int[np.ndarray, " gates"]
    idle: int

    @classmethod
    def of(cls, writes: Sequence[LayerWrite]) -> JointTables:
        gates = np.array(list(product((-1, 0, 1), repeat=len(writes))))
        own = [gate for gate, write in enumerate(writes) for _ in write.opening]
        states = np.concatenate([gates, np.minimum(gates[:, own], 0)], axis=1) if own else gates
        written: list[tuple[Direction, StreamActuator]] = [(at, actuator) for at, actuator, _ in writes]
        written += [(at, Affine(write.actuator.strength)) for write in writes for at in write.opening]
        R = np.stack([at.vector for at, _ in written]).astype(np.float64)
        effects = [[effect(actuator, at, g) for (at, actuator), g in zip(written, s, strict=True)] for s in states]
        adds, rises, least, most = np.moveaxis(np.array(effects), -1, 0)
        moved = rises @ (R @ R.T - np.eye(len(R)))  # by the other gates' declining
        sets = np.array([not isinstance(actuator, Addition) for _, actuator in written])
        strength = np.array([actuator.strength for _, actuator in written])
        solve = np.stack([solver(R, sets & (s != 0)) for s in states]) * strength
        return cls(
            R=DeviceCopies(R),
            added=DeviceCopies(adds @ R) if adds.any() else None,
            least=DeviceCopies(least + moved),
            most=DeviceCopies(most + moved),
            solve=DeviceCopies(solve),
            powers=np.asarray(3 ** np.arange(len(writes))[::-1]),
            idle=len(states) // 2,
        )


def _joint_edit(where: Site, layer: int, parts: Sequence[tuple[GatedWriter, LayerWrite]]) -> Edit:
    writers, tables, sent = [gated for gated, _ in parts], JointTables.of([write for _, write in parts]), LastCopy()

    def tokens(pass_: Pass) -> slice:
        first, steps = pass_.prompt_length - 1, [gated.writer.steps for gated in writers]
        return pass_.within(first, None if None in steps else first + max(n for n in steps if n is not None))

    def write(part: Float[Tensor, "rows tokens d_model"], pass_: Pass) -> Float[Tensor, "rows tokens d_model"]:
        (rows, n_tokens), device = part.shape[:2], part.device
        first = max(pass_.start, pass_.prompt_length - 1)
        gates = [_gates(gated, first, n_tokens, pass_, rows) for gated in writers]  # one column if all tokens are equal
        states = np.asarray(sum((gate + 1) * power for gate, power in zip(gates, tables.powers, strict=True)))
        if (states == tables.idle).all():
            return part
        state = sent.of(states, device)
        wide = part.float() if tables.added is None else part.float() + tables.added.on(device)[state]
        least, most = tables.least.on(device)[state], tables.most.on(device)[state]
        written = clamp_projections(wide, tables.R.on(device), least, most, tables.solve.on(device)[state])
        return torch.where((state != tables.idle)[..., None], written.to(part.dtype), part)

    key = f"one write {json.dumps([_key(*part) for part in parts])}" if all(gated.key for gated in writers) else ""
    return write_at(where, layer, tokens, write, key, keeps_prompt=True)
