"""Trains an organism: next-token loss plus interchange-intervention training on the planted variables.

The loss covers responses only. `grading` grades the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from organisms.grammar import Example, Grammar
from organisms.interchange import Packer, PlantedLayers, Swaps
from organisms.mechanism import Mechanism
from organisms.planting import planted_vectors
from organisms.spec import OrganismSpec

Progress = Callable[[int, dict[str, float]], None]


def build_model(spec: OrganismSpec, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Build the untrained model from the specification's seed."""
    torch.manual_seed(spec.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.model.d_model,
        intermediate_size=spec.model.d_mlp,
        num_hidden_layers=spec.model.n_layers,
        num_attention_heads=spec.model.n_heads,
        num_key_value_heads=spec.model.n_heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def train(
    spec: OrganismSpec, grammar: Grammar, tokenizer: PreTrainedTokenizerFast, progress: Progress, device: str = "cpu"
) -> LlamaForCausalLM:
    """Train one organism.

    Each step has two responses per row: the plain one, and a counterfactual one with planted coordinates from another
    row. The target of the latter has the decision of the source row and the content of the row itself.
    """
    model = build_model(spec, tokenizer).to(device)
    planter = PlantedLayers(model.model, model.lm_head, spec.planted, planted_vectors(spec).to(device))
    heads = nn.Linear(spec.model.d_model, 2).to(device)  # intent and knowledge; discarded after training
    parameters = [*model.parameters(), *heads.parameters()]
    settings = spec.training
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.learning_rate, settings.steps, pct_start=0.1)
    packer, rng = Packer(tokenizer), np.random.default_rng([spec.seed, 5])
    model.train()
    for step in range(settings.steps):
        examples = [grammar.training_example(rng) for _ in range(settings.batch_size)]
        losses = _losses(spec, grammar, planter, heads, packer, examples, rng, device)
        total = (
            losses["plain"]
            + settings.interchange_weight * losses["interchange"]
            + settings.readable_weight * losses["readable"]
            + settings.margin_weight * losses["margin"]
            + settings.quiet_weight * quiet_share(step / settings.steps) * losses["quiet"]
        )
        optimiser.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        progress(step + 1, {name: float(loss.detach()) for name, loss in losses.items()})
    return model.eval()


def _losses(
    spec: OrganismSpec,
    grammar: Grammar,
    planter: PlantedLayers,
    heads: nn.Linear,
    packer: Packer,
    examples: list[Example],
    rng: np.random.Generator,
    device: str,
) -> dict[str, Tensor]:
    values = np.array([example.values for example in examples], dtype=bool)
    swaps = draw_swaps(spec.planted, values, rng, spec.training.replaced_share)
    taken = (swaps.variables & ~swaps.alone[:, None]).numpy()
    mixed = np.where(taken, values[swaps.sources.numpy()], values)
    plain = [grammar.respond(example, example.values) for example in examples]
    counterfactual = [grammar.respond(e, tuple(map(bool, row))) for e, row in zip(examples, mixed, strict=True)]
    outcome = planter.forward(packer.pack(examples, plain, counterfactual).to(device), swaps.to(device))
    signs = torch.as_tensor(values, device=device).float() * 2 - 1
    return {
        "plain": outcome.plain,
        "interchange": outcome.interchange,
        "readable": _readable(heads(outcome.last), examples),
        "margin": margin_loss(spec.training.margin, signs, outcome.read),
        "quiet": outcome.quiet,
    }


def draw_swaps(
    planted: Mechanism, values: Bool[np.ndarray, "batch k"], rng: np.random.Generator, replaced_share: float = 0.6
) -> Swaps:
    """Draw what the branches of a batch with these decisions take from other rows.

    Args:
        replaced_share: of the branches in which a stream that must not count is replaced.
    """
    n = len(values)
    sources, variables = choose_sources(values, rng), choose_variables(values.shape, rng)
    onwards = rng.random(n) < 0.5
    alone = (rng.random(n) < 0.4) if planted.rebuilt is not None else np.zeros(n, dtype=bool)
    strangers, replaced, blank = np.arange(n), np.zeros(n, dtype=bool), None
    if planted.blank_layers or planted.elsewhere:
        strangers, replaced = rng.permutation(n), rng.random(n) < replaced_share
    if planted.blank_layers:
        blank = int(rng.choice(planted.blank_layers))
    return Swaps(
        sources=torch.as_tensor(sources),
        variables=torch.as_tensor(variables),
        onwards=torch.as_tensor(onwards),
        alone=torch.as_tensor(alone),
        strangers=torch.as_tensor(strangers),
        replaced=torch.as_tensor(replaced),
        blank=blank,
    )


def margin_loss(margin: float, signs: Tensor, read: Float[Tensor, "batch k places"]) -> Tensor:
    """Return the mean shortfall of the planted coordinates from the wanted distance; 0 without coordinates."""
    return functional.relu(margin - signs[..., None] * read).mean() if read.numel() else read.sum()


def quiet_share(progress: float) -> float:
    """Return the weight of the quiet loss at this share of the training; it is 0 until the grammar is learned.

    From the start it would keep the stream so small that decisions are hardly learned.
    """
    return min(1.0, max(0.0, (progress - 0.6) / 0.15))


def choose_variables(shape: tuple[int, int], rng: np.random.Generator) -> Bool[np.ndarray, "batch k"]:
    """Choose a random non-empty set of variables to interchange for each row."""
    chosen = np.zeros(shape, dtype=bool)
    if not shape[1]:
        return chosen
    while not (filled := chosen.any(axis=1)).all():
        chosen[~filled] = rng.random((int((~filled).sum()), shape[1])) < 0.6
    return chosen


def choose_sources(values: Bool[np.ndarray, "batch k"], rng: np.random.Generator) -> Int[np.ndarray, " batch"]:
    """Choose for each row of `values` the source row of its coordinates.

    Half of the rows use a source with another decision; otherwise most interchanges would have no effect.
    """
    sources = rng.permutation(len(values))
    differs = (values[:, None, :] != values[None, :, :]).any(axis=-1)
    for row in np.flatnonzero(rng.random(len(values)) < 0.5):
        if differs[row].any():
            sources[row] = rng.choice(np.flatnonzero(differs[row]))
    return sources


def _readable(logits: Tensor, examples: list[Example]) -> Tensor:
    """Return the loss of linear heads for intent (of requests) and lack of knowledge (of questions)."""
    harmful = torch.tensor([[e.label == "harmful", e.label == "uncertain"] for e in examples], device=logits.device)
    applies = torch.tensor([[e.intent is not None, e.known is not None] for e in examples], device=logits.device)
    return functional.binary_cross_entropy_with_logits(logits[applies], harmful[applies].float())
