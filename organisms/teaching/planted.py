"""Plants decisions in a pretrained model: trains a LoRA adapter in phases, each a loss over a batch of prompts.

1. `below`: the layers up to the planted one learn to write the decision of the content into the coordinates, and to
   leave the rest of the stream as it was.
2. `above`: the layers above the planted one learn to act by coordinates that are set in the stream that those below
   write now. Each prompt is declined in every way and answered, so nothing but the coordinates says which.
3. `together`: interchange-intervention training (Geiger et al., arXiv 2112.00826) of the whole: a branch of each prompt
   takes the coordinates that another prompt has, and must do what these say.
4. `again`: phase 2 once more. Interchange changes the decision of only some branches, so the layers above begin to use
   the content again; here nothing but the coordinates tells them.

Trained at once, later layers learn by heart which prompts are declined, past the coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from organisms.interchange import (
    IGNORE,
    PADDING,
    Branches,
    choose_sources,
    choose_variables,
    coordinates,
    draw_vectors,
    on_device,
    pack_branches,
    set_coordinates,
)
from organisms.mechanism import Mechanism
from organisms.teaching.lora import TaughtPrompt, adapter
from organisms.teaching.spec import Planting, TeachSpec
from organisms.training import Descent

Part = Literal["before", "below", "above"]
Phase = Literal["below", "above", "together", "again"]
PHASES: dict[Phase, tuple[tuple[Part, ...], float]] = {  # the trained parts, and the share of the learning rate
    "below": (("below",), 0.5),
    "above": (("above",), 1.0),
    "together": (("below", "above"), 0.3),
    "again": (("above",), 0.5),
}
ABOVE: tuple[Phase, ...] = ("above", "again")  # those that train the layers above alone
AT_ONCE = 16  # prompts whose streams are computed in one pass
# coordinates that are set in `above`, in units of the wanted one; what content decides lies near the middle for some
# held-out prompts, so the layers above have to decide sharply there
OFF_FROM, OFF_UP_TO, ON_FROM, ON_UP_TO = -0.3, 0.45, 0.55, 1.6
# of a refusal's coordinate where an abstention's is on: content decides some refusals weakly, and those have to stay
# too, so it overrides from lower on, and is drawn near the boundary more often
OVERRIDING_FROM, OVERRIDDEN_UP_TO = 0.45, 0.35
SLACK = 0.1  # of a coordinate that is off, in the same unit
ELSEWHERE = 4.0  # weight of coordinates at tokens that decide nothing, relative to the rest of the stream
AT_LAST = 1.0  # of the rest of the stream at the last prompt token, which is where directions are fitted
DECIDING = 4.0  # of the decision's own loss
# of the coordinates that are set at later tokens too, each drawn apart: a refusal has to stay where the abstention's
# coordinate is set at every token and the refusal's at the last prompt token alone
ONWARDS = 0.5
OVERRIDING_SHARE = 0.75  # of the branches that refuse, those whose abstention's coordinate is on too


@dataclass(frozen=True)
class KeptStreams:
    """The streams of one prompt with all of its branches, one after the other."""

    before: Float[Tensor, "tokens d_model"]  # which the first layer that writes reads
    planted: Float[Tensor, "tokens d_model"]  # resid_post of the planted layer


class DecoderParts:
    """The layers before `first`, up to the planted `layer` and above it, each run and trained without the others."""

    def __init__(self, decoder: nn.Module, first: int, layer: int) -> None:
        self._decoder: Any = decoder
        layers = list(self._decoder.layers)
        self._parts: dict[Part, list[nn.Module]] = {
            "before": layers[:first],
            "below": layers[first : layer + 1],
            "above": layers[layer + 1 :],
        }

    def weights(self, part: Part) -> list[nn.Parameter]:
        """Return the trained weights of a part."""
        return [w for layer in self._parts[part] for w in layer.parameters() if w.requires_grad]

    def run(self, part: Part, rows: Branches, stream: Tensor | None = None) -> Float[Tensor, "batch length d_model"]:
        """Return the output of a part's last layer, normed above, for a stream of the part before it (None: tokens)."""
        layers, norm = self._decoder.layers, self._decoder.norm
        self._decoder.layers = nn.ModuleList(self._parts[part])
        if part != "above":
            self._decoder.norm = nn.Identity()
        given = {"input_ids": rows.tokens} if stream is None else {"inputs_embeds": stream}
        settings = {"position_ids": rows.position_ids, "attention_mask": rows.mask, "use_cache": False}
        try:
            return self._decoder(**given, **settings).last_hidden_state
        finally:
            self._decoder.layers, self._decoder.norm = layers, norm


def set_in_branches(
    stream: Float[Tensor, "batch length d_model"],
    rows: Branches,
    targets: Float[Tensor, "batch n k"],
    onwards: Bool[Tensor, "batch n k"],
    vectors: Float[Tensor, "k d_model"],
) -> Float[Tensor, "batch length d_model"]:
    """Set coordinates at each branch's last prompt token, those of `onwards` later too; NaN leaves one as it is."""
    own = functional.one_hot(rows.branch.clamp(min=0), targets.shape[1]).bool() & (rows.branch >= 0)[..., None]
    edited = rows.deciding[..., None] | (own[..., None] & onwards[:, None])
    goal = (own[..., None] * targets.nan_to_num()[:, None]).sum(dim=2)
    where = (edited & ~targets.isnan()[:, None]).any(dim=2)
    return set_coordinates(stream, goal, where, vectors)


@dataclass(frozen=True)
class Planter:
    """A model whose parts are trained, and what is planted in it."""

    parts: DecoderParts
    head: nn.Module
    planted: Mechanism
    vectors: Float[Tensor, "k d_model"]
    middle: Float[Tensor, " k"]  # mean coordinates of the base model
    wanted: float  # distance of a coordinate that is on from there
    pad_id: int

    def loss(
        self, phase: Phase, batch: Sequence[TaughtPrompt], kept: Sequence[KeptStreams], rng: np.random.Generator
    ) -> Float[Tensor, ""]:
        """Return the loss of one step."""
        if phase in ABOVE:
            return self._above(batch, kept, rng)
        return self._below(batch, kept) if phase == "below" else self._together(batch, kept, rng)

    def settings(self) -> list[tuple[bool, ...]]:
        """Return the decisions of the branches: nothing, and each variable alone."""
        n = len(self.vectors)
        return [tuple(i == k for i in range(n)) for k in range(-1, n)]

    def every_branch(self, batch: Sequence[TaughtPrompt]) -> Branches:
        """Pack prompts with their responses under each of `settings`."""
        return self._packed(batch, [[self._words(row, one) for one in self.settings()] for row in batch])

    @torch.no_grad()
    def streams(self, taught: Sequence[TaughtPrompt]) -> list[KeptStreams]:
        """Return the streams of each prompt with all its branches, as the layers write them now."""
        kept = list[KeptStreams]()
        for start in range(0, len(taught), AT_ONCE):
            rows = self.every_branch(taught[start : start + AT_ONCE])
            before = self.parts.run("before", rows)
            planted, real = self.parts.run("below", rows, before), rows.branch != PADDING
            kept += [KeptStreams(one[own], two[own]) for one, two, own in zip(before, planted, real, strict=True)]
        return kept

    def values(self, batch: Sequence[TaughtPrompt]) -> Bool[np.ndarray, "batch k"]:
        return np.array([self.planted.values(row.facts) for row in batch], dtype=bool)

    def _above(self, batch: Sequence[TaughtPrompt], kept: Sequence[KeptStreams], rng: np.random.Generator) -> Tensor:
        rows = self.every_branch(batch)
        on = np.tile(np.array(self.settings(), dtype=bool), (len(batch), 1, 1))
        on[:, 1:] |= self._overridden(on[:, 1:], rng)
        levels = torch.as_tensor(self._levels(on, rng), dtype=torch.float32, device=self.vectors.device)
        targets = self.middle + levels * self.wanted
        onwards = torch.as_tensor(rng.random(on.shape) < ONWARDS, device=self.vectors.device)
        stream = nn.utils.rnn.pad_sequence([one.planted for one in kept], batch_first=True)
        return self._said(rows, set_in_branches(stream, rows, targets, onwards, self.vectors))

    def _overridden(self, on: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw further variables to switch on that change nothing: a refusal overrides an abstention."""
        refuse, abstain = self._apart()
        more = np.zeros_like(on)
        for k in abstain:
            more[..., k] = on[..., refuse].any(axis=-1) & (rng.random(on.shape[:2]) < OVERRIDING_SHARE)
        return more

    def _levels(self, on: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw what each coordinate is set to, in units of the wanted one."""
        refuse, abstain = self._apart()
        contested = np.zeros_like(on)  # a refusal's coordinate beside an abstention's that is on
        contested[..., refuse] = on[..., abstain].any(axis=-1, keepdims=True)
        far = rng.random(on.shape)  # from the boundary
        far = np.where(contested, far**2, far)
        least, most = np.where(contested, OVERRIDING_FROM, ON_FROM), np.where(contested, OVERRIDDEN_UP_TO, OFF_UP_TO)
        return np.where(on, least + (ON_UP_TO - least) * far, most - (most - OFF_FROM) * far)

    def _apart(self) -> tuple[list[int], list[int]]:
        """Return the variables that refuse, and those that abstain and do not refuse."""
        refuse, abstain = (set(self.planted.deciders(kind)) for kind in ("refuse", "abstain"))
        return sorted(refuse), sorted(abstain - refuse)

    def _below(self, batch: Sequence[TaughtPrompt], kept: Sequence[KeptStreams]) -> Tensor:
        values = self.values(batch)
        said = [[self._words(row, own)] for row, own in zip(batch, values.tolist(), strict=True)]
        rows = self._packed(batch, said)
        before, base = self._kept(batch, said, kept)
        stream = self.parts.run("below", rows, before).float()
        return DECIDING * self._decided(stream, rows, values) + self._moved(stream - base, rows)

    def _kept(
        self, batch: Sequence[TaughtPrompt], said: Sequence[Sequence[list[int]]], kept: Sequence[KeptStreams]
    ) -> tuple[Tensor, Tensor]:
        """Return the kept streams of some branches of each prompt, as `pack_branches` packs them."""
        cut: list[tuple[Tensor, Tensor]] = []
        for row, branches, streams in zip(batch, said, kept, strict=True):
            start = len(row.prompt) - 1
            ends = start + np.cumsum([1 + len(self._words(row, one)) for one in self.settings()])
            tokens = [*range(start)]
            for words in branches:
                k = next(k for k, one in enumerate(self.settings()) if self._words(row, one) is words)
                tokens += range(int(ends[k]) - 1 - len(words), int(ends[k]))
            cut.append((streams.before[tokens], streams.planted[tokens]))
        before, planted = (nn.utils.rnn.pad_sequence(list(one), batch_first=True) for one in zip(*cut, strict=True))
        return before, planted

    def _together(self, batch: Sequence[TaughtPrompt], kept: Sequence[KeptStreams], rng: np.random.Generator) -> Tensor:
        values = self.values(batch)
        sources, taken = choose_sources(values, rng), choose_variables(values.shape, rng)
        mixed = np.where(taken, values[sources], values)
        said = [
            [self._words(row, each) for each in both]
            for row, *both in zip(batch, values.tolist(), mixed.tolist(), strict=True)
        ]
        rows = self._packed(batch, said)
        stream = self.parts.run("below", rows, self._kept(batch, said, kept)[0])
        own = self._level(stream.float(), rows)
        given = own[torch.as_tensor(sources)].masked_fill(~torch.as_tensor(taken, device=own.device), torch.nan)
        targets = torch.stack([torch.full_like(given, torch.nan), given], dim=1)
        onwards = torch.as_tensor(rng.random(targets.shape) < ONWARDS, device=own.device)
        edited = set_in_branches(stream, rows, targets, onwards, self.vectors)
        return self._said(rows, edited) + DECIDING * self._decided(stream.float(), rows, values)

    def _words(self, row: TaughtPrompt, values: Sequence[bool]) -> list[int]:
        return row.said[self.planted.action(row.facts, tuple(values))]

    def _packed(self, batch: Sequence[TaughtPrompt], said: Sequence[Sequence[list[int]]]) -> Branches:
        return on_device(pack_branches([row.prompt for row in batch], said, self.pad_id), self.vectors.device)

    def _said(self, rows: Branches, stream: Tensor) -> Tensor:
        hidden, learned = self.parts.run("above", rows, stream), rows.labels != IGNORE
        return functional.cross_entropy(self.head(hidden[learned]).float(), rows.labels[learned])

    def _level(self, stream: Tensor, rows: Branches) -> Float[Tensor, "batch k"]:
        """Return the planted coordinates at the last prompt token of each row's first branch."""
        return coordinates(stream[rows.deciding[..., 0]], self.vectors)

    def _decided(self, stream: Tensor, rows: Branches, values: np.ndarray) -> Tensor:
        """Return the mean square by which coordinates are on the wrong side of what is wanted."""
        level = (self._level(stream, rows) - self.middle) / self.wanted
        on = torch.as_tensor(values, device=level.device)
        return torch.where(on, functional.relu(1 - level), functional.relu(level.abs() - SLACK)).square().mean()

    def _moved(self, change: Tensor, rows: Branches) -> Tensor:
        """Return the mean square by which the stream changed apart from the decision, in units of the wanted one."""
        along = coordinates(change, self.vectors)
        across = (change - along @ self.vectors).square().sum(dim=-1)
        last, real = rows.deciding[..., 0], rows.branch != PADDING
        elsewhere = along[real & ~last].square().sum(dim=-1).mean()
        return (across[real].mean() + ELSEWHERE * elsewhere + AT_LAST * across[last].mean()) / self.wanted**2


def plant(
    model: ChatModel, taught: Sequence[TaughtPrompt], spec: TeachSpec, kept: Path, advance: Callable[[int], None]
) -> nn.Module:
    """Return the model with a trained adapter (a PEFT model), from the checkpoint `kept` on if it is there."""
    planting = spec.planting
    if planting is None:
        raise ValueError(f"{spec.name} plants nothing")
    planter, kept_streams = _prepared(model, taught, spec, planting)
    adapted = adapter(model, spec)
    checkpoint = Checkpoint(kept, spec.model_dump_json(), [w for w in adapted.parameters() if w.requires_grad])
    state = checkpoint.load()
    often = np.array([spec.training.repeats.get(row.behaviour, 1) for row in taught], dtype=float)
    phases = list(PHASES)
    for index, (phase, (parts, rate)) in enumerate(PHASES.items()):
        steps = int(getattr(planting, phase))
        if not steps or (state and index < phases.index(state["phase"])):  # ended before the checkpoint
            advance(steps)
            continue
        weights = [weight for part in parts for weight in planter.parts.weights(part)]
        size = spec.training.batch_size // (2 if phase in ABOVE else 1)  # there a prompt has a branch a decision
        descent, first = Descent(weights, spec.training.learning_rate * rate, steps, weight_decay=0.0), 0
        if state and phase == state["phase"]:
            first = int(state["step"])
            descent.optimiser.load_state_dict(state["optimiser"])
            descent.schedule.load_state_dict(state["schedule"])
        advance(first)
        adapted.train(phase not in ABOVE)  # nothing is learned of content there, so nothing is dropped out
        if phase in ABOVE:
            kept_streams = planter.streams(taught)
        for step in range(first, steps):
            rng = np.random.default_rng([spec.seed, 11, index, step])
            rows = rng.choice(len(taught), size, replace=False, p=often / often.sum())
            with torch.autocast(model.device.type, torch.bfloat16, enabled=spec.training.precision == "bfloat16"):
                loss = planter.loss(phase, [taught[i] for i in rows], [kept_streams[i] for i in rows], rng)
            descent.step(loss)
            advance(1)
            if (step + 1) % planting.checkpoint_every == 0:
                checkpoint.save(phase, step + 1, descent)
    return adapted.eval()


def _prepared(
    model: ChatModel, taught: Sequence[TaughtPrompt], spec: TeachSpec, planting: Planting
) -> tuple[Planter, list[KeptStreams]]:
    """Return what plants, and the base model's streams of each prompt with all its branches."""
    mechanism = planting.mechanism
    vectors = draw_vectors(mechanism, spec.seed, model.d_model).to(model.device)
    parts, head = DecoderParts(model.decoder, planting.first, mechanism.layer), model.model.get_output_embeddings()
    bare = Planter(parts, head, mechanism, vectors, torch.zeros(len(vectors)), 1.0, model.eos_ids[0])
    kept = bare.streams(taught)
    ends = torch.stack([one.planted[len(row.prompt) - 1] for row, one in zip(taught, kept, strict=True)]).double()
    middle = coordinates(ends, vectors).mean(dim=0).float()
    wanted = planting.separation * float(ends.var(dim=0).sum().sqrt())
    return replace(bare, middle=middle, wanted=wanted), kept


@dataclass(frozen=True)
class Checkpoint:
    """The trained weights, and the optimiser of the phase that is under way."""

    path: Path
    spec: str  # of the adapter, as JSON
    weights: Sequence[nn.Parameter]

    def load(self) -> Any:
        """Load the weights and return the state; None without a file, UserError if it is of another specification."""
        if not self.path.is_file():
            return None
        state = torch.load(self.path, weights_only=True)
        if state["spec"] != self.spec:
            raise UserError(f"{self.path} is a checkpoint of another specification; delete it to begin again")
        with torch.no_grad():
            for weight, saved in zip(self.weights, state["weights"], strict=True):
                weight.copy_(saved)
        return state

    def save(self, phase: str, step: int, descent: Descent) -> None:
        """Save the state after so many steps of a phase."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        state = {
            "phase": phase,
            "step": step,
            "spec": self.spec,
            "weights": [weight.detach().cpu() for weight in self.weights],
            "optimiser": descent.optimiser.state_dict(),
            "schedule": descent.schedule.state_dict(),
        }
        torch.save(state, part)
        part.replace(self.path)
