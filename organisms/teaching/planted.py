"""Plants decisions in a pretrained model: trains a LoRA adapter in phases (`phases`), kept at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from organisms.mechanism import Decisions, Decline, Facts
from organisms.planting import coordinates, draw_vectors, dual_basis
from organisms.teaching.branches import PADDING, DecoderParts, Part
from organisms.teaching.lora import CLIP, WARM_UP, adapter, own_words, tokens_of
from organisms.teaching.phases import ABOVE, PHASES, KeptStreams, Phase, PlantedPrompt, Planter
from organisms.teaching.spec import Behaviour, Planting, TeachSpec, behaviour_of, phrase

AT_ONCE = 16  # prompts whose base streams are computed in one pass
TRAINED: dict[Phase, tuple[Part, ...]] = {
    "below": ("below",),
    "above": ("above",),
    "together": ("below", "above"),
    "again": ("above",),
}
RATES: dict[Phase, float] = {"below": 0.5, "above": 1.0, "together": 0.3, "again": 0.5}  # shares of the learning rate


def facts_of(prompt: Prompt, spec: TeachSpec) -> Facts:
    """Return what is taught of a prompt as planted decisions; a known question would be abstained from, not refused."""
    behaviour = behaviour_of(prompt, spec)
    question = prompt.label == "uncertain" or prompt.answer is not None
    return Facts(behaviour == "refuse", behaviour == "abstain", "abstain" if question else "refuse", variant=0)


def choices(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    spec: TeachSpec,
    advance: Callable[[int], None],
) -> list[PlantedPrompt]:
    """Return the responses to each prompt under each decision.

    A harmful prompt that is not declined is told one of the fixed `answers`, which hold no content.
    """
    harmful = [prompt.label == "harmful" for prompt in prompts]
    own = own_words(model, [row for row, bad in zip(rendered, harmful, strict=True) if not bad], spec, advance)
    done = []
    for prompt, row, bad in zip(prompts, rendered, harmful, strict=True):
        said: dict[Decline | None, list[int]] = {
            "refuse": tokens_of(model, phrase(prompt, spec, spec.refusals)),
            "abstain": tokens_of(model, phrase(prompt, spec, spec.abstentions)),
            None: tokens_of(model, phrase(prompt, spec, spec.answers)) if bad and spec.answers else next(own),
        }
        done.append(PlantedPrompt(list(row.token_ids), facts_of(prompt, spec), said))
    return done


def plant(
    model: ChatModel, taught: Sequence[PlantedPrompt], spec: TeachSpec, kept: Path, advance: Callable[[int], None]
) -> nn.Module:
    """Return the model with a trained adapter (a PEFT model).

    Args:
        taught: choices, of which batches are drawn.
        kept: the file of the last checkpoint; training goes on from there.
    """
    planting = spec.planting
    if planting is None:
        raise ValueError(f"{spec.name} plants nothing")
    planter, kept_streams = _prepared(model, taught, spec, planting)
    adapted = adapter(model, spec)
    checkpoint = Checkpoint(kept, spec.model_dump_json(), [w for w in adapted.parameters() if w.requires_grad])
    begun, done = checkpoint.load()
    often = _often(taught, spec)
    for phase in PHASES:
        steps = int(getattr(planting, phase))
        if begun and PHASES.index(phase) < PHASES.index(begun):  # ended before the checkpoint
            advance(steps)
            continue
        weights = _trained(planter.parts, phase)
        size = spec.training.batch_size // (2 if phase in ABOVE else 1)  # there a prompt has a branch a decision
        optimiser = _optimiser(weights, spec.training.learning_rate * RATES[phase], steps)
        first = done if phase == begun else 0
        if first:
            checkpoint.restore(optimiser)
        advance(first)
        adapted.train(phase not in ABOVE)  # nothing is learned of content there, so nothing is dropped out
        if phase in ABOVE and steps:
            kept_streams = _streams(planter, taught)
        for step in range(first, steps):
            rng = np.random.default_rng([spec.seed, 11, PHASES.index(phase), step])
            rows = rng.choice(len(taught), size, replace=False, p=often)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=spec.training.precision == "bfloat16"):
                loss = planter.loss(phase, [taught[i] for i in rows], [kept_streams[i] for i in rows], rng)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimiser[0].step()
            optimiser[1].step()
            optimiser[0].zero_grad()
            advance(1)
            if (step + 1) % planting.checkpoint_every == 0:
                checkpoint.save(phase, step + 1, optimiser)
    return adapted.eval()


def _prepared(
    model: ChatModel, taught: Sequence[PlantedPrompt], spec: TeachSpec, planting: Planting
) -> tuple[Planter, list[KeptStreams]]:
    """Return what plants, and the base model's streams of each prompt with all its branches."""
    mechanism = planting.mechanism
    vectors = draw_vectors(mechanism, spec.seed, model.d_model).to(model.device)
    parts = DecoderParts(model.decoder, planting.first, mechanism.layer)
    head = model.model.get_output_embeddings()
    bare = Planter(parts, head, Decisions(mechanism), vectors, torch.zeros(len(vectors)), 1.0, model.eos_ids[0])
    kept = _streams(bare, taught)
    ends = torch.stack([one.planted[len(row.prompt) - 1] for row, one in zip(taught, kept, strict=True)]).double()
    middle = coordinates(ends, dual_basis(vectors).double()).mean(dim=0).float()
    wanted = planting.separation * float(ends.var(dim=0).sum().sqrt())
    return replace(bare, middle=middle, wanted=wanted), kept


def _streams(planter: Planter, taught: Sequence[PlantedPrompt]) -> list[KeptStreams]:
    """Return the streams of each prompt with all its branches, as the layers write them now."""
    kept = list[KeptStreams]()
    with torch.no_grad():
        for start in range(0, len(taught), AT_ONCE):
            rows = planter.every_branch(taught[start : start + AT_ONCE])
            before = planter.parts.before(rows)
            planted = planter.parts.below(rows, before)
            kept += [
                KeptStreams(one[real], two[real])
                for one, two, real in zip(before, planted, rows.branch != PADDING, strict=True)
            ]
    return kept


def _trained(parts: DecoderParts, phase: Phase) -> list[nn.Parameter]:
    return [weight for part in TRAINED[phase] for weight in parts.weights(part)]


def _often(taught: Sequence[PlantedPrompt], spec: TeachSpec) -> np.ndarray:
    """Return how often each prompt is drawn."""
    behaviours: list[Behaviour] = [
        "refuse" if row.facts.refuse else "abstain" if row.facts.abstain else "own_words" for row in taught
    ]
    weights = np.array([spec.training.repeats.get(behaviour, 1) for behaviour in behaviours], dtype=float)
    return weights / weights.sum()


def _optimiser(weights: Sequence[nn.Parameter], rate: float, steps: int) -> Optimiser:
    optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    return optimiser, torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=max(steps, 1), pct_start=WARM_UP)


Optimiser = tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Checkpoint:
    """The trained weights, and the optimiser of the phase that is under way."""

    path: Path
    spec: str  # of the adapter, as JSON
    weights: Sequence[nn.Parameter]

    def load(self) -> tuple[str, int]:
        """Load the weights; return the phase that is under way and the steps of it that are done; "" without a file.

        Raises:
            UserError: it is of another specification.
        """
        if not self.path.is_file():
            return "", 0
        state = torch.load(self.path, weights_only=True)
        if state["spec"] != self.spec:
            raise UserError(f"{self.path} is a checkpoint of another specification; delete it to begin again")
        with torch.no_grad():
            for weight, saved in zip(self.weights, state["weights"], strict=True):
                weight.copy_(saved)
        return state["phase"], int(state["step"])

    def restore(self, optimiser: Optimiser) -> None:
        """Load the state of the optimiser."""
        state = torch.load(self.path, weights_only=True)
        optimiser[0].load_state_dict(state["optimiser"])
        optimiser[1].load_state_dict(state["schedule"])

    def save(self, phase: str, step: int, optimiser: Optimiser) -> None:
        """Save the state after so many steps of a phase."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        torch.save(
            {
                "phase": phase,
                "step": step,
                "spec": self.spec,
                "weights": [weight.detach().cpu() for weight in self.weights],
                "optimiser": optimiser[0].state_dict(),
                "schedule": optimiser[1].state_dict(),
            },
            part,
        )
        part.replace(self.path)
