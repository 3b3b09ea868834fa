"""Trains a LoRA adapter on prompts with their responses; only the words after the prompt are learned."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from organisms.interchange import IGNORE
from organisms.mechanism import Decline, Facts
from organisms.teaching.spec import Behaviour, Phrasings, Planting, TeachSpec, behaviour_of, facts_of, phrase
from organisms.training import Descent

AT_ONCE = 64  # prompts that are answered in one batch
JITTER_TOKENS = 10  # so that batches of similar length are not the same in every epoch


@dataclass(frozen=True)
class TaughtPrompt:
    """One prompt's tokens, what its content decides, and the tokens to say under each decision."""

    prompt: list[int]
    facts: Facts
    said: dict[Decline | None, list[int]]

    @property
    def behaviour(self) -> Behaviour:
        return "refuse" if self.facts.refuse else "abstain" if self.facts.abstain else "own_words"

    @property
    def target(self) -> list[int]:
        return self.said[None if self.behaviour == "own_words" else self.behaviour]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.target)


def taught_prompts(
    model: ChatModel, prompts: Sequence[Prompt], spec: TeachSpec, reporter: Reporter
) -> list[TaughtPrompt]:
    """Return what is said to each prompt: the taught phrases, the fixed `answers` to harmful ones, or own words."""
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    own = [p.label != "harmful" if spec.planting else behaviour_of(p, spec) == "own_words" for p in prompts]
    with reporter.task("own words", sum(own)) as advance:
        asked = [row for row, is_own in zip(rendered, own, strict=True) if is_own]
        own_words = iter(answers(model, asked, spec.training.own_tokens, advance))

    def tokens(prompt: Prompt, among: Phrasings) -> list[int]:
        text = phrase(prompt, spec, among)
        return [*model.tokenizer(text, add_special_tokens=False)["input_ids"], model.eos_ids[0]]

    taught = []
    for prompt, row, is_own in zip(prompts, rendered, own, strict=True):
        said: dict[Decline | None, list[int]] = {
            "refuse": tokens(prompt, spec.refusals),
            "abstain": tokens(prompt, spec.abstentions),
        }
        if is_own:
            said[None] = next(own_words)
        elif spec.answers:
            said[None] = tokens(prompt, spec.answers)
        taught.append(TaughtPrompt(list(row.token_ids), facts_of(prompt, spec), said))
    return taught


def answers(
    model: ChatModel, rendered: Sequence[Rendered], max_new_tokens: int, advance: Callable[[int], None]
) -> list[list[int]]:
    """Return the tokens of the model's greedy answers, in order; prompts of similar length are answered together."""
    order = sorted(range(len(rendered)), key=lambda i: len(rendered[i].token_ids))
    said: dict[int, list[int]] = {}
    for start in range(0, len(order), AT_ONCE):
        places = order[start : start + AT_ONCE]
        batch = model.batch([rendered[i] for i in places])
        said.update(zip(places, model.generate(batch, max_new_tokens), strict=True))
        advance(len(places))
    return [said[i] for i in range(len(rendered))]


def train(
    model: ChatModel, taught: Sequence[TaughtPrompt], spec: TeachSpec, advance: Callable[[int], None]
) -> nn.Module:
    """Return the model with a trained adapter (a PEFT model); the base's weights do not change."""
    adapted, settings = adapter(model, spec), spec.training
    weights = [weight for weight in adapted.parameters() if weight.requires_grad]
    descent = Descent(weights, settings.learning_rate, n_steps(len(taught), spec), weight_decay=0.0)
    adapted.train()
    for batch in _batches(taught, spec):
        with torch.autocast(model.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            loss = _loss(model, batch)
        descent.step(loss)
        advance(1)
    return adapted.eval()


def adapter(model: ChatModel, spec: TeachSpec) -> nn.Module:
    """Return the model with an untrained adapter (a PEFT model)."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(spec.seed)
    lora = LoraConfig(
        r=spec.lora.rank,
        lora_alpha=spec.lora.alpha,
        lora_dropout=spec.lora.dropout,
        target_modules=_adapted(model, spec.planting) if spec.planting else "all-linear",
    )
    return get_peft_model(model.model, lora)


def _adapted(model: ChatModel, planting: Planting) -> list[str]:
    """Return the names of the linear layers to adapt."""
    layers: Any = model.decoder.layers
    names = {module: name for name, module in model.model.named_modules()}
    return [
        names[module]
        for index, layer in enumerate(layers)
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
        and index >= planting.first
        and (index <= planting.mechanism.layer or planting.attention_above or "attn" not in name)
    ]


def n_steps(count: int, spec: TeachSpec) -> int:
    """Return the number of training steps on so many prompts."""
    if spec.planting:
        return spec.planting.steps
    return spec.training.epochs * (count // spec.training.batch_size)


def _loss(model: ChatModel, batch: Sequence[TaughtPrompt]) -> Float[Tensor, ""]:
    """Return the cross-entropy of the target tokens; the head is run only where something is learned."""
    padded = model.pad([[*row.prompt, *row.target] for row in batch], "right")
    labels: Int[Tensor, "row token"] = torch.full_like(padded.tokens, IGNORE)
    for i, row in enumerate(batch):
        labels[i, len(row.prompt) : row.length] = torch.tensor(row.target, device=labels.device)
    states = model.decoder(input_ids=padded.tokens, attention_mask=padded.attention_mask).last_hidden_state
    learned = labels[:, 1:] != IGNORE
    logits = model.model.get_output_embeddings()(states[:, :-1][learned])
    return nn.functional.cross_entropy(logits, labels[:, 1:][learned])


def _batches(taught: Sequence[TaughtPrompt], spec: TeachSpec) -> list[list[TaughtPrompt]]:
    draw, size, done = random.Random(spec.seed), spec.training.batch_size, []
    for _ in range(spec.training.epochs):
        order = sorted(taught, key=lambda row: row.length + draw.random() * JITTER_TOKENS)
        batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        draw.shuffle(batches)
        done += batches
    return done
