"""Plants decisions in a pretrained model: trains a LoRA adapter in phases (`phases`), kept at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from organisms.planting import coordinates, draw_vectors
from organisms.teaching.lora import TaughtPrompt, adapter
from organisms.teaching.phases import ABOVE, PHASES, DecoderParts, KeptStreams, Planter
from organisms.teaching.spec import Planting, TeachSpec
from organisms.training import Descent


def plant(
    model: ChatModel, taught: Sequence[TaughtPrompt], spec: TeachSpec, kept: Path, advance: Callable[[int], None]
) -> nn.Module:
    """Return the model with a trained adapter (a PEFT model).

    Args:
        taught: prompts of which batches are drawn, with the responses under each decision.
        kept: the file of the last checkpoint; training goes on from there.
    """
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
    parts, head = (
        DecoderParts(model.decoder, planting.first, mechanism.layer),
        model.model.get_output_embeddings(),
    )
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
        """Load the weights; return the phase under way, its steps that are done, and the state of its optimiser.

        Raises:
            UserError: it is of another specification.
        """
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
