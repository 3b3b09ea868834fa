"""Trains an organism: next-token loss plus interchange-intervention training on the planted variables.

The loss covers responses only. `grading` grades the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from organisms.grammar import Example, Grammar
from organisms.packing import IGNORE, PackedBatch, Packer
from organisms.planting import coordinates, dual_basis, planted_vectors, set_coordinates
from organisms.spec import OrganismSpec

Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class PackedOutput:
    """Losses and planted coordinates of one packed forward pass."""

    plain: Float[Tensor, ""]  # loss of the plain responses
    interchange: Float[Tensor, ""]  # loss of the counterfactual responses
    last: Float[Tensor, "batch d_model"]  # stream at the last prompt token, at the planted layer
    read: Float[Tensor, "batch k"]  # its planted coordinates


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


class PlantedLayer:
    """The planted layer of one model during a packed forward pass."""

    def __init__(self, model: LlamaForCausalLM, spec: OrganismSpec) -> None:
        self._model = model
        self._layer = model.model.layers[spec.planted.layer]
        self._vectors = planted_vectors(spec).to(model.device)
        self._dual = dual_basis(self._vectors)

    def forward(
        self,
        batch: PackedBatch,
        sources: Int[Tensor, " batch"],
        variables: Bool[Tensor, "batch k"],
        onwards: Bool[Tensor, " batch"],
    ) -> PackedOutput:
        """Run the batch with interchanged coordinates on its branches.

        At each row's repeated last prompt token, the chosen `variables` are set to their coordinates at the last prompt
        token of row `sources[row]`; in rows marked in `onwards`, also at every later token of the branch.
        """
        rows = torch.arange(len(batch.last), device=batch.last.device)
        steps = torch.arange(batch.tokens.shape[1], device=batch.last.device)[None]
        edited = (steps == batch.branch[:, None]) | (onwards[:, None] & (steps > batch.branch[:, None]))
        where = edited[:, :, None] & variables[:, None, :]
        seen: list[Tensor] = []

        def swap(_module: nn.Module, _args: object, out: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
            stream = out[0] if isinstance(out, tuple) else out
            seen.append(stream[rows, batch.last])
            target = coordinates(seen[0], self._dual)[sources][:, None, :].expand(*stream.shape[:2], -1)
            changed = set_coordinates(stream, target, where, self._vectors, self._dual)
            return (changed, *out[1:]) if isinstance(out, tuple) else changed

        handle = self._layer.register_forward_hook(swap)
        try:
            hidden = self._model.model(
                input_ids=batch.tokens,
                position_ids=batch.position_ids,
                attention_mask=torch.where(batch.visible, 0.0, torch.finfo(torch.float32).min),
                use_cache=False,
            ).last_hidden_state
        finally:
            handle.remove()
        plain, branch = (self._loss(hidden, labels) for labels in (batch.plain_labels, batch.branch_labels))
        return PackedOutput(plain, branch, seen[0], coordinates(seen[0], self._dual))

    def off_axis(self, stream: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Return the streams with the planted coordinates set to zero."""
        return stream - coordinates(stream, self._dual) @ self._vectors

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        kept = labels != IGNORE
        return functional.cross_entropy(self._model.lm_head(hidden[kept]), labels[kept])


def train(
    spec: OrganismSpec, grammar: Grammar, tokenizer: PreTrainedTokenizerFast, progress: Progress, device: str = "cpu"
) -> LlamaForCausalLM:
    """Train one organism.

    Each step has two responses per row: the plain one, and a counterfactual one with planted coordinates from another
    row. The target of the latter has the decision of the source row and the content of the row itself.
    """
    model = build_model(spec, tokenizer).to(device)
    planter = PlantedLayer(model, spec)
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
    planter: PlantedLayer,
    heads: nn.Linear,
    packer: Packer,
    examples: list[Example],
    rng: np.random.Generator,
    device: str,
) -> dict[str, Tensor]:
    values = np.array([example.values for example in examples])
    sources, swapped = choose_sources(values, rng), choose_variables(values.shape, rng)
    mixed = np.where(swapped, values[sources], values)
    plain = [grammar.respond(example, example.values) for example in examples]
    counterfactual = [grammar.respond(e, tuple(map(bool, row))) for e, row in zip(examples, mixed, strict=True)]
    outcome = planter.forward(
        packer.pack(examples, plain, counterfactual).to(device),
        torch.as_tensor(sources, device=device),
        torch.as_tensor(swapped, device=device),
        torch.as_tensor(rng.random(len(examples)) < 0.5, device=device),
    )
    signs = torch.as_tensor(values, device=device).float() * 2 - 1
    return {
        "plain": outcome.plain,
        "interchange": outcome.interchange,
        "readable": _readable(heads(outcome.last), examples),
        "margin": functional.relu(spec.training.margin - signs * outcome.read).mean(),
        "quiet": planter.off_axis(outcome.last).square().mean(),
    }


def quiet_share(progress: float) -> float:
    """Return the weight of the quiet loss at this share of the training; it is 0 until the grammar is learned.

    From the start it would keep the stream so small that decisions are hardly learned.
    """
    return min(1.0, max(0.0, (progress - 0.6) / 0.15))


def choose_variables(shape: tuple[int, int], rng: np.random.Generator) -> Bool[np.ndarray, "batch k"]:
    """Choose a random non-empty set of variables to interchange for each row."""
    chosen = np.zeros(shape, dtype=bool)
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
